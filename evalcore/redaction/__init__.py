"""What is secret, in which spellings it turns up, and the one redactor that covers it."""
