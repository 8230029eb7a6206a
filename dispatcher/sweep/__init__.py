"""Job → gone: deletes finished Jobs after their attempt is over, never earlier."""
