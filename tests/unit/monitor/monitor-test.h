/* SPDX-License-Identifier: BSD-2-Clause */
/* A machine with monitors on sockets, and clients for them, in one process and one thread. */
#ifndef GODWIT_TESTS_MONITOR_TEST_H
#define GODWIT_TESTS_MONITOR_TEST_H

#include "monitor/monitor.h"

/* Longer than anything should take on the slowest machine. */
#define HANG_TIMEOUT_MS 60000

typedef struct TestVm {
    MonitorContext ctx;
    Machine *machine;
    MigrationContext *migration;
    MemoryBackendSet backends;
    GMainLoop *loop;
    char *folder; /* for sockets and files */
    GPtrArray *chardevs;
} TestVm;

/* Machine none with 16 MiB in block "ram" of backend "ram", in prelaunch or, with @incoming, inmigrate. */
TestVm *test_vm_new(bool incoming);
void test_vm_free(TestVm *vm);

typedef struct TestClient {
    int fd;
    GString *in; /* received and not yet looked at */
} TestClient;

/* A monitor on the unix socket "NAME" in the VM's folder. */
void test_vm_add_monitor(TestVm *vm, const char *name, MonitorMode mode, bool pretty);
TestClient *test_client_new(TestVm *vm, const char *name);
void test_client_free(TestClient *c);

/* Lets the main loop run until nothing is left to do. */
void test_settle(void);

void test_send(TestClient *c, const char *text);
void test_send_bytes(TestClient *c, const void *bytes, size_t len);
void test_send_fd(TestClient *c, const char *text, int fd);

/*
 * The next line without its \r\n; the caller frees.  Fails the test if none comes, or if it does not end so.
 */
char *test_receive_line(TestClient *c);
/* What has come, up to and with @end. */
char *test_receive_until(TestClient *c, const char *end);
/* True if the connection has ended and nothing is left. */
bool test_at_end(TestClient *c);

/* The next line is exactly @line. */
void test_expect(TestClient *c, const char *line);
/* Sends @request and expects @reply. */
void test_exchange(TestClient *c, const char *request, const char *reply);
/* Nothing has come. */
void test_expect_silence(TestClient *c);
/* The next line is event @name with data @data ("" for none); its time stamp is looked at. */
void test_expect_event(TestClient *c, const char *name, const char *data);

/* A QMP client that has finished negotiation. */
TestClient *test_qmp_client_new(TestVm *vm, const char *name);

#endif
