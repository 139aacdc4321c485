-- Without the cases $ids nothing that is computed of the items counts them.
DELETE FROM items WHERE case_id IN (SELECT unnest($ids::VARCHAR[]))
