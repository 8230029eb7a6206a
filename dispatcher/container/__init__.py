"""The code of ours in the container of a task: `dispatcher exec`, and `dispatcher try` on the author's machine."""
