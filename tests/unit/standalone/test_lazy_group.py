"""The groups of `magnetar admin` say of each command what it does."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from magnetar.standalone.main import main


@pytest.mark.parametrize("group", ["tenants", "namespaces", "topics", "topicPolicies"])
def test_the_help_of_a_group_cuts_no_sentence(group: str) -> None:
    result = CliRunner().invoke(main, ["admin", group, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert not [line for line in result.output.splitlines() if line.endswith("...") and "Usage" not in line]
