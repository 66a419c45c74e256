"""Retention: what was kept for as long as its kind says goes, batch by batch, and the audit trail says what went."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db import IntegrityError, connection, transaction

from jobs import audit
from jobs.engine.leases import violated
from jobs.models import AgentJob

SENSITIVE_DAYS = 7  # traces hold what people typed; whoever needs one looks soon
BATCH, BATCHES = 500, 40  # rows of one transaction, and transactions of one turn
NAMES = 50  # of deleted files that the audit trail names, for each job

# Chains go whole, in one statement: an attempt refers to the one before. A chain that a person just retried, or that
# was put under a hold meanwhile, makes its batch fail and is left out of the next one.
JOBS = """
    WITH old AS MATERIALIZED (
      SELECT job.root_id, kind.keep_jobs_days AS days
      FROM agent_jobs job JOIN job_kinds kind ON kind.name = job.kind
      WHERE job.status = ANY(%(ended)s)
        AND coalesce(job.finished_at, job.updated_at) < now() - make_interval(days => kind.keep_jobs_days)
        AND NOT EXISTS (SELECT FROM agent_jobs later WHERE later.retry_of = job.id)
        AND NOT EXISTS (SELECT FROM legal_holds hold WHERE hold.root_id = job.root_id)
      LIMIT %(batch)s FOR UPDATE OF job SKIP LOCKED
    ), files AS MATERIALIZED (
      SELECT job.root_id, count(*) AS files, sum(file.size_bytes) AS bytes
      FROM old JOIN agent_jobs job USING (root_id) JOIN agent_job_artifacts file ON file.job_id = job.id
      GROUP BY job.root_id
    ), gone AS (
      DELETE FROM agent_jobs USING old WHERE agent_jobs.root_id = old.root_id
      RETURNING agent_jobs.*, old.days
    ), told AS (
      INSERT INTO audit_events (tag, actor, subject_table, subject_id, reason, details)
      SELECT %(tag)s, %(actor)s, 'agent_jobs', gone.root_id, 'kept for ' || min(days) || ' days', jsonb_build_object(
        'kind', min(gone.kind), 'agent', min(gone.principal_key), 'attempts', count(*),
        'status', (array_agg(gone.status ORDER BY attempt DESC))[1],
        'verdict', (array_agg(gone.verdict ORDER BY attempt DESC))[1],
        'finished_at', max(gone.finished_at), 'files', coalesce(min(files.files), 0),
        'bytes', coalesce(min(files.bytes), 0)
      ) FROM gone LEFT JOIN files USING (root_id) GROUP BY gone.root_id RETURNING 1
    ) SELECT count(*) FROM told
"""
FILES = """
    WITH old AS MATERIALIZED (
      SELECT file.id, least(kind.keep_files_days, CASE WHEN file.sensitive THEN %(sensitive_days)s::int END) AS days
      FROM agent_job_artifacts file JOIN agent_jobs job ON job.id = file.job_id
        LEFT JOIN job_kinds kind ON kind.name = job.kind
      WHERE job.status = ANY(%(ended)s)
        AND file.created_at < now() - make_interval(
          days => least(kind.keep_files_days, CASE WHEN file.sensitive THEN %(sensitive_days)s::int END))
        AND NOT EXISTS (SELECT FROM legal_holds hold WHERE hold.root_id = coalesce(job.root_id, job.id))
      LIMIT %(batch)s FOR UPDATE OF file SKIP LOCKED
    ), gone AS (
      DELETE FROM agent_job_artifacts USING old WHERE agent_job_artifacts.id = old.id
      RETURNING agent_job_artifacts.job_id, name, size_bytes, sha256, days
    ), told AS (
      INSERT INTO audit_events (tag, actor, subject_table, subject_id, reason, details)
      SELECT %(tag)s, %(actor)s, 'agent_jobs', job_id, 'kept for ' || min(days) || ' days', jsonb_build_object(
        'files', count(*), 'bytes', sum(size_bytes),
        'names', to_jsonb((array_agg(name ORDER BY name))[:%(names)s::int])
      ) FROM gone GROUP BY job_id
    ) SELECT count(*) FROM gone
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Purged:
    """How many jobs (with all their attempts) and how many single files were deleted; the sweep removes the bytes."""

    jobs: int
    files: int


def purge() -> Purged:
    """Delete ended jobs, and files, that are older than their kind keeps them. Safe to run several times at once.

    Work that goes on and what is under a legal hold is left alone. A turn deletes at most 20,000 of each.
    """
    return Purged(
        files=_in_batches(lambda: _delete(FILES, audit.Tag.FILES_PURGED)),
        jobs=_in_batches(lambda: _delete(JOBS, audit.Tag.JOB_PURGED)),
    )


def _in_batches(delete: Callable[[], int]) -> int:
    count = 0
    for _ in range(BATCHES):
        try:
            with transaction.atomic():
                deleted = delete()
        except IntegrityError as conflict:
            # Somebody retried or held one of these meanwhile. The next turn sees it.
            logger.warning("A batch of the purge was refused: %s", violated(conflict))
            break
        count += deleted
        if deleted < BATCH:
            break
    return count


def _delete(sql: str, tag: audit.Tag) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            sql,
            {
                "ended": list(AgentJob.lifecycle.finished), "tag": tag, "actor": "agentstore", "batch": BATCH,
                "sensitive_days": SENSITIVE_DAYS, "names": NAMES,
            },
        )  # fmt: skip
        row = cursor.fetchone()
    return int(row[0]) if row else 0
