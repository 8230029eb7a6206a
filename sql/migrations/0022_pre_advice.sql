-- Texts that said the same twice, had a word that submitters do not know, or told them to change a row, which nobody can.
UPDATE dispatch.reasons AS r SET meaning = coalesce(new.meaning, r.meaning), next_step = new.next_step
FROM (VALUES
    ('Poison', NULL, 'correct the template, or cancel the row and insert one whose Job the API server accepts'),
    ('FailuresExhausted', NULL, 'look at the errors of its runs in task_history; then task_retry'),
    ('Finishing', NULL, 'nothing: the row goes on when the Job of that container has ended'),
    ('NextCycle', 'the dispatcher has not come to it yet', 'nothing: the dispatcher looks at it within a second'),
    ('InLine', NULL, 'nothing, or give the row a lower number by task_set_priority')
) AS new (reason, meaning, next_step)
WHERE r.reason = new.reason;
