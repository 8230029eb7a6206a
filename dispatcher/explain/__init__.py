"""Why does a row wait: one true reason, whose turn it is, and what would change it.

    row, last cycle (admission.last_cycle), line ─▶ explanation.explain_row ─▶ Explanation ─▶ HTTP, commands

The gates of the cycle give the reason. Nothing here judges by itself.
"""
