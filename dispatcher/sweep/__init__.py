"""Job → gone: finished Jobs whose row is over are cleared away, never earlier."""
