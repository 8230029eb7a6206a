"""What people see: why a row waits, whose turn it is, and what would change it.

    row, last cycle (admission.last_cycle), line ─▶ explanation.explain ─▶ Explanation ─▶ HTTP, commands

Read-only JSON and pages at DISPATCHER_DASHBOARD_ADDRESS. The gates of the cycle give the reason. Nothing here judges by
itself.
"""
