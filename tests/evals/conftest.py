from __future__ import annotations

import pytest
from evals_shared import CASES, LABELLED

from megatron_cuda_graphs.evals.model import Case, Labelled


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def labelled(case: Case) -> Labelled:
    return LABELLED[case.id]
