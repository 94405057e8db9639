"""The same service as a competent web developer would write it: FastAPI, SQLAlchemy 2, SQLite.

Same requests and answers as `whitelie serve`, for experiments, decisions and feedback: Thompson
sampling over the arms' counts in the database, a row per decision that can be used once, one
transaction per request, answers after the commit, WAL with synchronous=FULL.

Handlers run on the event loop and call SQLite there. FastAPI's thread pool (40 threads or 2) and
aiosqlite were tried in short runs and none was faster. Statements are built once. With one common
channel the best Beta draw of feedback is also the best corrected draw, so the mechanism does not
enter the choice.

    PEER_STORE=/tmp/peer.db WHITELIE_ADMIN_KEY=ak_… uvicorn fastapi_peer:app --app-dir benchmarks
"""

import math
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field
from sqlalchemy import (
    JSON,
    ForeignKey,
    UniqueConstraint,
    bindparam,
    create_engine,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    relationship,
    sessionmaker,
)

KEY = os.environ["WHITELIE_ADMIN_KEY"]
MOST_PER_REQUEST = 1000


class Base(DeclarativeBase):
    pass


class Experiment(Base):
    __tablename__ = "experiments"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    epsilon: Mapped[float]
    window: Mapped[int]
    spread: Mapped[int]
    arms: Mapped[list["Arm"]] = relationship(back_populates="experiment", order_by="Arm.id")


class Arm(Base):
    __tablename__ = "arms"
    __table_args__ = (UniqueConstraint("experiment_id", "key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiments.id"), index=True)
    key: Mapped[str]
    payload: Mapped[Any | None] = mapped_column(JSON)
    pulls: Mapped[int] = mapped_column(default=0)
    successes: Mapped[int] = mapped_column(default=0)
    experiment: Mapped[Experiment] = relationship(back_populates="arms")


class Decision(Base):
    __tablename__ = "decisions"

    token: Mapped[str] = mapped_column(primary_key=True)
    arm_id: Mapped[int] = mapped_column(ForeignKey("arms.id"))
    expires: Mapped[float]
    used: Mapped[bool] = mapped_column(default=False)


ARMS = (
    select(Arm.id, Arm.key, Arm.payload, Arm.pulls, Arm.successes)
    .where(Arm.experiment_id == bindparam("experiment"))
    .order_by(Arm.id)
)
ISSUE = insert(Decision)
USE = (
    update(Decision)
    .where(
        Decision.token.in_(bindparam("tokens", expanding=True)),
        Decision.used.is_(False),
        Decision.expires >= bindparam("now"),
    )
    .values(used=True)
    .returning(Decision.token, Decision.arm_id)
    .execution_options(synchronize_session=False)
)
COUNT = (
    update(Arm)
    .where(Arm.id == bindparam("arm"))
    .values(pulls=Arm.pulls + bindparam("n"), successes=Arm.successes + bindparam("s"))
)
KNOWN = select(Decision.token, Decision.used).where(
    Decision.token.in_(bindparam("tokens", expanding=True))
)

engine = create_engine(
    f"sqlite:///{os.environ['PEER_STORE']}",
    pool_size=1,
    max_overflow=0,
    connect_args={"check_same_thread": False, "timeout": 30, "isolation_level": None},
)
sessions = sessionmaker(engine, expire_on_commit=False)


@event.listens_for(engine, "connect")
def configure(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


@event.listens_for(engine, "begin")
def begin(connection: Any) -> None:
    """Every request here writes, so the lock is taken at once and reads cannot go stale."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


Base.metadata.create_all(engine)
generator = np.random.default_rng()
app = FastAPI()
bearer = HTTPBearer()


class ArmIn(BaseModel):
    key: str
    payload: Any | None = None


class ExperimentIn(BaseModel):
    name: str
    arms: Annotated[list[ArmIn], Field(min_length=1)]
    epsilon: Annotated[float, Field(gt=0)]
    window: int
    spread: int


class ExperimentOut(BaseModel):
    id: str
    name: str


class DecisionsIn(BaseModel):
    count: Annotated[int, Field(ge=1, le=MOST_PER_REQUEST)] = 1


class Mechanism(BaseModel):
    p00: float
    p11: float
    window: int
    spread: int


class DecisionOut(BaseModel):
    arm: str
    payload: Any | None
    token: str
    mechanism: Mechanism
    expires_in: int


class DecisionsOut(BaseModel):
    decisions: list[DecisionOut]


class Answer(BaseModel):
    token: str
    bit: Annotated[int, Field(ge=0, le=1)]


class Answers(BaseModel):
    items: Annotated[list[Answer], Field(min_length=1, max_length=MOST_PER_REQUEST)]


class Status(BaseModel):
    status: str


class StatusesOut(BaseModel):
    items: list[Status]


async def session() -> AsyncIterator[Session]:
    with sessions() as opened:
        yield opened


async def admin(credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]) -> None:
    if not secrets.compare_digest(credentials.credentials.encode(), KEY.encode()):
        raise HTTPException(403, "wrong key")


Database = Annotated[Session, Depends(session)]


@app.get("/readyz")
def ready() -> dict[str, str]:
    return {"status": "ready"}


@app.post("/v1/experiments", status_code=201, dependencies=[Depends(admin)])
def create(wanted: ExperimentIn, database: Database) -> ExperimentOut:
    slug = re.sub(r"[^a-z0-9]+", "-", wanted.name.lower()).strip("-")
    if database.get(Experiment, slug) is not None:
        slug = f"{slug}-{secrets.token_hex(4)}"
    arms = [Arm(key=arm.key, payload=arm.payload) for arm in wanted.arms]
    database.add(
        Experiment(
            id=slug,
            name=wanted.name,
            epsilon=wanted.epsilon,
            window=wanted.window,
            spread=wanted.spread,
            arms=arms,
        )
    )
    database.commit()
    return ExperimentOut(id=slug, name=wanted.name)


@app.post("/v1/experiments/{identifier}/decisions", dependencies=[Depends(admin)])
async def decide(identifier: str, wanted: DecisionsIn, database: Database) -> DecisionsOut:
    experiment = database.get(Experiment, identifier)
    if experiment is None:
        raise HTTPException(404, "no such experiment")
    arms = database.execute(ARMS, {"experiment": identifier}).all()
    pulls = np.array([arm.pulls for arm in arms])
    successes = np.array([arm.successes for arm in arms])
    draws = generator.beta(1 + successes, 1 + pulls - successes, (wanted.count, len(arms)))
    chosen = [arms[place] for place in draws.argmax(axis=1)]
    lifetime = experiment.window + experiment.spread
    expires = time.time() + lifetime
    tokens = [secrets.token_urlsafe(24) for _ in chosen]
    database.execute(
        ISSUE,
        [
            {"token": token, "arm_id": arm.id, "expires": expires}
            for token, arm in zip(tokens, chosen, strict=True)
        ],
    )
    database.commit()
    keep = 1 / (1 + math.exp(-experiment.epsilon))
    mechanism = Mechanism(p00=keep, p11=keep, window=experiment.window, spread=experiment.spread)
    return DecisionsOut(
        decisions=[
            DecisionOut(
                arm=arm.key,
                payload=arm.payload,
                token=token,
                mechanism=mechanism,
                expires_in=lifetime,
            )
            for token, arm in zip(tokens, chosen, strict=True)
        ]
    )


@app.post("/v1/feedback")
async def feedback(report: Answer | Answers, database: Database) -> StatusesOut:
    items = [report] if isinstance(report, Answer) else report.items
    now = time.time()
    bits: dict[str, int] = {}
    for item in items:
        bits.setdefault(item.token, item.bit)
    fresh = database.execute(USE, {"tokens": list(bits), "now": now}).all()
    if fresh:
        pulls: Counter[int] = Counter()
        ones: Counter[int] = Counter()
        for token, arm in fresh:
            pulls[arm] += 1
            ones[arm] += bits[token]
        database.connection().execute(
            COUNT,
            [{"arm": arm, "n": n, "s": ones[arm]} for arm, n in pulls.items()],
        )
    accepted = {token for token, _ in fresh}
    others = bits.keys() - accepted
    refused: dict[str, str] = {}
    if others:
        known = database.execute(KNOWN, {"tokens": list(others)})
        refused = {token: "duplicate" if used else "expired" for token, used in known}
    database.commit()
    statuses = []
    for item in items:
        if item.token in accepted:
            accepted.remove(item.token)
            refused[item.token] = "duplicate"
            statuses.append(Status(status="accepted"))
        else:
            statuses.append(Status(status=refused.get(item.token, "invalid")))
    return StatusesOut(items=statuses)
