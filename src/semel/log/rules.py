"""The rules of the log, for commands that decide by them without a broker."""

from semel.log.core.access import (
    CLUSTER_NAME,
    EVERYTHING,
    AccessRules,
    Asker,
    Operation,
    Pattern,
    Permission,
    ResourceType,
    RuleFilter,
    Verdict,
    checked,
)
from semel.log.core.entries import AccessRule, AccessRulesAdded
from semel.log.core.quotas import BUSY, CLIENT_ID, CONNECTED, FETCHED, IP, PRODUCED, USER
from semel.log.core.users import ITERATIONS_MAX, ITERATIONS_MIN
