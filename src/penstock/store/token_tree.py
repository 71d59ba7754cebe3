"""The tree of tokens: each knows the one that created it, and ends with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import CTE, func, select, update

from penstock.core.access import GIVES, Principal, Role
from penstock.store import sessions
from penstock.store.database import Tx
from penstock.store.principals import by_id
from penstock.store.tables import principals


@dataclass(frozen=True, slots=True)
class Revoked:
    """What one revocation ended: the token asked for, and how many tokens and sessions in all."""

    principal: Principal
    tokens: int
    sessions: int


def _tree(root: UUID) -> CTE:
    """The ids of a principal and of everything that came from it, at any depth."""
    tree = select(principals.c.id).where(principals.c.id == root).cte("tree", recursive=True)
    return tree.union(select(principals.c.id).where(principals.c.parent_id == tree.c.id))


def revoke_tree(tx: Tx, principal_id: UUID) -> Revoked | None:
    """Revoke a principal and everything that came from it, with their sessions.

    A token that is created meanwhile holds a lock on its parent. The update waits for it, and the next look finds the new
    token. Nobody can create one under a parent that this transaction has revoked, so a look that finds nothing is the last.
    """
    tree = _tree(principal_id)
    revoked: list[UUID] = []
    statement = (
        update(principals)
        .where(principals.c.id.in_(select(tree.c.id)), principals.c.revoked_at.is_(None))
        .values(revoked_at=tx.now)
        .returning(principals.c.id)
    )
    while found := list(tx.run(statement).scalars()):
        revoked += found
    whole = list(tx.run(select(tree.c.id)).scalars())
    ended = sessions.close_of(tx, whole)
    after = by_id(tx, principal_id)
    return None if after is None else Revoked(after, len(revoked), ended)


def revoke_children(tx: Tx, principal_id: UUID, role: Role | None = None) -> int:
    """Revoke what a principal has created: with a role, only what somebody of that role could not have created."""
    query = select(principals.c.id, principals.c.role).where(
        principals.c.parent_id == principal_id, principals.c.revoked_at.is_(None)
    )
    kept = frozenset() if role is None else GIVES[role]
    wanted = [row.id for row in tx.rows(query) if Role(row.role) not in kept]
    done = [revoke_tree(tx, each) for each in wanted]
    return sum(each.tokens for each in done if each is not None)


def descendants(tx: Tx, principal_id: UUID) -> int:
    """How many valid tokens came from it, at any depth, itself not counted."""
    tree = _tree(principal_id)
    query: Any = (
        select(func.count())
        .select_from(principals)
        .where(
            principals.c.id.in_(select(tree.c.id)), principals.c.id != principal_id, principals.c.revoked_at.is_(None)
        )
    )
    count: int = tx.scalar(query)
    return count


def is_within(tx: Tx, principal_id: UUID, root: UUID) -> bool:
    """Whether a principal is `root` or came from it."""
    tree = _tree(root)
    return tx.first(select(tree.c.id).where(tree.c.id == principal_id)) is not None
