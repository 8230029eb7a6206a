"""Commands that people type: `explain`, `status`, `logs`, `render`."""
