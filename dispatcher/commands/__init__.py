"""Commands that people type: `explain`, `status`, `logs`, `try`, `render`, `adopt`, `submit`, `wait`."""
