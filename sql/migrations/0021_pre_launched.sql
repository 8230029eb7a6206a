-- A container may run for a moment before it reports its start, so 'has not started' was not always true.
UPDATE dispatch.reasons SET meaning = 'its Job exists, and its container has not reported its start' WHERE reason = 'Launched';
