"""The planted bugs of all rooms."""

from typing import Final

from saboteurs.aborted_bugs import ABORTED_BUGS
from saboteurs.access_bugs import ACCESS_BUGS
from saboteurs.broker_bugs import BROKER_BUGS
from saboteurs.cache_bugs import CACHE_BUGS
from saboteurs.compaction_bugs import COMPACTION_BUGS
from saboteurs.console_bugs import CONSOLE_BUGS
from saboteurs.damage_bugs import DAMAGE_BUGS
from saboteurs.dialect_bugs import DIALECT_BUGS
from saboteurs.hole_bugs import HOLE_BUGS
from saboteurs.http_bugs import HTTP_BUGS
from saboteurs.inbox_bugs import INBOX_BUGS
from saboteurs.journal_bugs import JOURNAL_BUGS
from saboteurs.kit_bugs import KIT_BUGS
from saboteurs.lane_bugs import LANE_BUGS
from saboteurs.outbox_bugs import OUTBOX_BUGS
from saboteurs.pipeline_bugs import PIPELINE_BUGS
from saboteurs.planting import Bug
from saboteurs.product_bugs import PRODUCT_BUGS
from saboteurs.proof_bugs import PROOF_BUGS
from saboteurs.publish_bugs import PUBLISH_BUGS
from saboteurs.quota_bugs import QUOTA_BUGS
from saboteurs.record_bugs import RECORD_BUGS
from saboteurs.registry_bugs import REGISTRY_BUGS
from saboteurs.replica_bugs import REPLICA_BUGS
from saboteurs.resignation_bugs import RESIGNATION_BUGS
from saboteurs.schema_bugs import SCHEMA_BUGS
from saboteurs.security_bugs import SECURITY_BUGS
from saboteurs.share_bugs import SHARE_BUGS
from saboteurs.sink_bugs import SINK_BUGS
from saboteurs.sql_sink_bugs import SQL_SINK_BUGS
from saboteurs.standby_bugs import STANDBY_BUGS
from saboteurs.step_bugs import STEP_BUGS
from saboteurs.store_bugs import STORE_BUGS
from saboteurs.table_bugs import TABLE_BUGS
from saboteurs.token_bugs import TOKEN_BUGS
from saboteurs.transfer_bugs import TRANSFER_BUGS
from saboteurs.trap_bugs import TRAP_BUGS
from saboteurs.watching_bugs import WATCHING_BUGS
from saboteurs.workflow_bugs import WORKFLOW_BUGS

ALL_BUGS: Final[tuple[Bug, ...]] = (
    *BROKER_BUGS,
    *RECORD_BUGS,
    *COMPACTION_BUGS,
    *ACCESS_BUGS,
    *ABORTED_BUGS,
    *TABLE_BUGS,
    *JOURNAL_BUGS,
    *STEP_BUGS,
    *STORE_BUGS,
    *RESIGNATION_BUGS,
    *REGISTRY_BUGS,
    *REPLICA_BUGS,
    *SQL_SINK_BUGS,
    *STANDBY_BUGS,
    *CACHE_BUGS,
    *PRODUCT_BUGS,
    *PROOF_BUGS,
    *DAMAGE_BUGS,
    *DIALECT_BUGS,
    *HOLE_BUGS,
    *PIPELINE_BUGS,
    *SINK_BUGS,
    *LANE_BUGS,
    *PUBLISH_BUGS,
    *HTTP_BUGS,
    *INBOX_BUGS,
    *OUTBOX_BUGS,
    *SCHEMA_BUGS,
    *KIT_BUGS,
    *SECURITY_BUGS,
    *CONSOLE_BUGS,
    *WATCHING_BUGS,
    *QUOTA_BUGS,
    *SHARE_BUGS,
    *TOKEN_BUGS,
    *TRANSFER_BUGS,
    *TRAP_BUGS,
    *WORKFLOW_BUGS,
)
