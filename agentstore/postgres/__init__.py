"""Django's PostgreSQL backend, made punctual: see `base`, whose name Django chooses."""
