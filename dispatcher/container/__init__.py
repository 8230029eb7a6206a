"""What runs beside the code of a task: `dispatcher exec`, and `dispatcher try` on the author's machine."""
