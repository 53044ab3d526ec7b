# SPDX-License-Identifier: BSD-2-Clause
"""
The harness of Godwit's tests: VMs of any make, their monitors, guest memory, ways to migrate, and faults.
"""
