"""What the service keeps: campaigns, rounds, counts, and the ids of reports already counted."""

from geoveil.store.contract import Store
from geoveil.store.group_writer import GroupWriter
from geoveil.store.opening import (
    Contents,
    copy_store,
    open_store,
    open_to_copy,
    restore_backup,
    write_backup,
)
from geoveil.store.records import (
    CampaignRecord,
    ClosingRecord,
    EstimateRecord,
    Job,
    NewerSchema,
    Overloaded,
    PreparationRecord,
    Progress,
    RoundRecord,
    RoundTimes,
    State,
    StoreFailed,
    TokenRecord,
    Upload,
)

__all__ = [
    "CampaignRecord", "ClosingRecord", "Contents", "EstimateRecord", "GroupWriter", "Job",
    "NewerSchema", "Overloaded", "PreparationRecord", "Progress", "RoundRecord", "RoundTimes",
    "State", "Store", "StoreFailed", "TokenRecord", "Upload",
    "copy_store", "open_store", "open_to_copy", "restore_backup", "write_backup",
]  # fmt: skip
