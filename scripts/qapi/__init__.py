# SPDX-License-Identifier: BSD-2-Clause
"""The schema generator: reads qapi/*.json, writes C and the reference page."""
