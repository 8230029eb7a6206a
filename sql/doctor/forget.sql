-- Forgets the prepared statement.
DEALLOCATE doctor_looks_at
