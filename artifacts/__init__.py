"""Evidence: the files that runners attach to jobs, in private storage."""
