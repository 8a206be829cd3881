"""Hypothesis strategies over the space of workloads and stacks."""

from __future__ import annotations

from hypothesis import strategies as st
from recommend_space import FACTS, MORE_STACK, STACKS

workloads = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in FACTS.items()})
stacks = st.builds(
    lambda base, more: {**base, **{k: v for k, v in more.items() if v is not None}},
    st.sampled_from(STACKS),
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in MORE_STACK.items()}),
)
