"""The tables: two leased ones that are a contract with SQL clients, and what governs them."""

from .acknowledgements import Acknowledgement
from .agent_instances import AgentInstance
from .agent_jobs import AgentJob
from .agent_tasks import AgentTask
from .agents import Agent, AgentToken
from .audit_events import AuditEvent
from .backup_runs import BackupJobRun, BackupSnapshot
from .backups import BackupJob, BackupJobSource, BackupRepository
from .enrolments import Enrolment, EnrolmentCode
from .github import GithubSpentToken, GithubTrust
from .job_kinds import JobKind
from .legal_holds import LegalHold
from .maintenance_duties import MaintenanceDuty
from .notices import Event, Notice, NoticeBookmark, NoticeChannel, NoticeRule, NoticeState
from .refused_bearers import RefusedBearers
from .schedules import Schedule, ScheduleSlot
from .targets import Target, TargetOrigin
from .uptime import Uptime

__all__ = [
    "Acknowledgement",
    "Agent",
    "AgentInstance",
    "AgentJob",
    "AgentTask",
    "AgentToken",
    "AuditEvent",
    "BackupJob",
    "BackupJobRun",
    "BackupJobSource",
    "BackupRepository",
    "BackupSnapshot",
    "Enrolment",
    "EnrolmentCode",
    "Event",
    "GithubSpentToken",
    "GithubTrust",
    "JobKind",
    "LegalHold",
    "MaintenanceDuty",
    "Notice",
    "NoticeBookmark",
    "NoticeChannel",
    "NoticeRule",
    "NoticeState",
    "RefusedBearers",
    "Schedule",
    "ScheduleSlot",
    "Target",
    "TargetOrigin",
    "Uptime",
]
