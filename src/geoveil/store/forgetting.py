"""Ids of reports are kept only while a repeated one could still arrive; then they are dropped."""

from __future__ import annotations

from geoveil.store.rounds import Rounds

_AT_A_TIME = 10_000
"""Ids looked at in one transaction: reports are counted between two of these."""


class Forgetting(Rounds):
    """Drops the ids of rounds that no longer accept reports."""

    def forget_ids(self, *, now_s: int) -> int:
        """Drop the ids of rounds that no longer accept reports; how many."""
        with self.reading() as run:
            over = run(
                "SELECT campaign_key, key FROM round"
                " WHERE ids_dropped < 2 AND accept_until_s < :now_s ORDER BY key",
                now_s=now_s,
            )
        return sum(self._forget(*keys) for keys in over)

    def _forget(self, campaign_key: int, round_key: int) -> int:
        dropped, after = 0, b""
        while True:
            stop, count = self._forget_some(campaign_key, round_key, after)
            dropped += count
            if stop is None:
                return dropped
            after = stop

    def _forget_some(
        self, campaign_key: int, round_key: int, after: bytes
    ) -> tuple[bytes | None, int]:
        """Drop ids from ``after`` on; the id to go on from (none: all done) and how many were dropped."""
        with self.writing() as run:
            mine = run(  # takes no more reports, and keeps other processes from the same work
                "UPDATE round SET ids_dropped = 1 WHERE key = :key AND ids_dropped < 2 RETURNING key",
                key=round_key,
            )
            if not mine:
                return None, 0
            further = run(
                "SELECT id FROM report WHERE campaign_key = :campaign_key AND id > :after"
                " ORDER BY id LIMIT 1 OFFSET :size",
                campaign_key=campaign_key,
                after=after,
                size=_AT_A_TIME - 1,
            )
            some = (
                "FROM report WHERE campaign_key = :campaign_key AND id > :after"
                f"{' AND id <= :stop' if further else ''} AND round_key = :round_key"
            )
            values: dict[str, object] = {
                "campaign_key": campaign_key,
                "round_key": round_key,
                "after": after,
            }
            if further:
                values["stop"] = further[0][0]
            ((count,),) = run(f"SELECT count(*) {some}", **values)
            run(f"DELETE {some}", **values)
            if not further:
                run("UPDATE round SET ids_dropped = 2 WHERE key = :key", key=round_key)
        return (further[0][0] if further else None), int(count)
