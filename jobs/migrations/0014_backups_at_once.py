"""How many backups go into one repository at once: the function that a claim asks."""

from django.db import migrations

# The repository is the one that a run was launched into, whatever its job uses by now.
# Volatile, so that it counts in a snapshot of its own: taken after the lock, it sees what the claim before it leased.
# Whoever finds the lock held leaves the row to another round, rather than wait while it holds rows.
CREATE = """
CREATE FUNCTION agent_tasks_admitted(run uuid, sort text, sure boolean) RETURNS boolean LANGUAGE plpgsql VOLATILE COST 1 AS $$
DECLARE
    repository uuid;
    at_once integer;
BEGIN
    IF sort <> 'backup' THEN RETURN true; END IF;
    SELECT backup_repositories.id, concurrent_backups INTO repository, at_once
        FROM backup_job_runs JOIN backup_repositories
            ON backup_repositories.id = backup_job_runs.repository_id
        WHERE backup_job_runs.id = run;
    IF at_once IS NULL THEN RETURN true; END IF;
    IF sure AND NOT pg_try_advisory_xact_lock(hashtextextended('backup_repository:' || repository::text, 0)) THEN
        RETURN false;
    END IF;
    RETURN at_once > (SELECT count(*) FROM agent_tasks
        JOIN backup_job_runs ON backup_job_runs.id = agent_tasks.job_run_id
        WHERE agent_tasks.status IN ('claimed', 'running') AND agent_tasks.task_type = 'backup'
            AND backup_job_runs.repository_id = repository);
END $$"""
DROP = "DROP FUNCTION agent_tasks_admitted(uuid, text, boolean)"


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0013_schedules_of_backups"),
    ]

    operations = [migrations.RunSQL(CREATE, DROP)]
