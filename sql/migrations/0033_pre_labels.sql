-- New entries of this index wait in a list, as long as the session that inserts allows. The next INSERT of somebody else sorts them all in.
ALTER INDEX tasks_labels SET (gin_pending_list_limit = 256);
