-- Fair order: between queues by their weights, and inside a queue between its submitters where the operator says so.
ALTER TABLE dispatch.queues ADD COLUMN fair_submitters boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN dispatch.queues.fair_submitters IS 'true: the submitter with the fewest Jobs in flight in this queue comes first; false: rows come by priority and id, whoever submitted them.';
COMMENT ON COLUMN dispatch.queues.weight IS 'Share of the Jobs in flight among the queues that have work, 1..1000: a queue of weight 2 gets twice as many Jobs as a queue of weight 1.';
