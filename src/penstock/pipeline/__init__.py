"""Pipelines: tables that compute themselves. `import penstock.pipeline as dj`

schema = dj.Schema("lab")

@schema
class Image(dj.Manual):
    definition = '''
    image_id : int
    ---
    image : <blob>
    '''

@schema
class FilteredImage(dj.Computed):
    definition = '''
    -> Image
    ---
    filtered_image : <blob>
    '''
    def make(self, key):
        image = (Image & key).fetch1("image")
        self.insert1({**key, "filtered_image": image * 2})

FilteredImage.populate(reserve_jobs=True)
"""

from __future__ import annotations

from penstock.pipeline.auto import AutoPopulate, Computed, Imported
from penstock.pipeline.blob import pack, unpack
from penstock.pipeline.config import Config, config
from penstock.pipeline.declare import DefinitionChanged
from penstock.pipeline.diagram import Diagram
from penstock.pipeline.errors import (
    AccessError,
    BlobError,
    DataJointError,
    DefinitionError,
    DuplicateError,
    EmptyMake,
    InputChanged,
    InvalidRow,
    JobTransitionError,
    MissingExtra,
    MissingParentError,
    PipelineError,
    QueryError,
    ReservationLost,
    RestrictionError,
    TransientError,
)
from penstock.pipeline.jobs import JobsTable
from penstock.pipeline.relation import Heading, Relation, Top
from penstock.pipeline.restrict import AndList, Not
from penstock.pipeline.retry import RetryPolicy
from penstock.pipeline.runner import populate_job
from penstock.pipeline.schema import Schema
from penstock.pipeline.table import Lookup, Manual, Part, Table

QueryExpression = Relation
"""The name that the seeds use for `Relation`."""

__all__ = [
    "AccessError",
    "AndList",
    "AutoPopulate",
    "BlobError",
    "Computed",
    "Config",
    "DataJointError",
    "DefinitionChanged",
    "DefinitionError",
    "Diagram",
    "DuplicateError",
    "EmptyMake",
    "Heading",
    "Imported",
    "InputChanged",
    "InvalidRow",
    "JobTransitionError",
    "JobsTable",
    "Lookup",
    "Manual",
    "MissingExtra",
    "MissingParentError",
    "Not",
    "Part",
    "PipelineError",
    "QueryError",
    "QueryExpression",
    "Relation",
    "ReservationLost",
    "RestrictionError",
    "RetryPolicy",
    "Schema",
    "Table",
    "Top",
    "TransientError",
    "config",
    "pack",
    "populate_job",
    "unpack",
]
