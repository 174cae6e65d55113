"""Settings of the operator's owner: lists and labels, and what is said of wrong ones."""

import pytest

from plimsoll.settings import OPTIONAL_KINDS, Settings, SettingsError


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("", OPTIONAL_KINDS),
        ("none", ()),
        ("PodMonitor, LeaderWorkerSet", ("LeaderWorkerSet", "PodMonitor")),
    ],
)
def test_optional_kinds_are_all_some_or_none(text: str, kinds: tuple[str, ...]) -> None:
    assert Settings.from_env({"PLIMSOLL_OPTIONAL_KINDS": text}).optional_kinds == kinds


def test_labels_of_monitors() -> None:
    read = Settings.from_env({"PLIMSOLL_POD_MONITOR_LABELS": '{"release": "prom", "team.example.com/scrape": "yes"}'})
    assert read.pod_monitor_labels == {"release": "prom", "team.example.com/scrape": "yes"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OPTIONAL_KINDS", "PodMonitor,Gateway", "'Gateway' is not one of"),
        ("POD_MONITOR_LABELS", "release=prom", "JSON object"),
        ("PROMETHEUS_URL", "https://prom.example.com?x", r"is not http\(s\)://HOST"),
        ("PROMETHEUS_URL", "https://user:pa55@prom.example.com/x", "no user or password in it"),
        ("POD_MONITOR_LABELS", '{"Not/A/Key": "x"}', "'Not/A/Key' is not a name"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(name: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError, match=f"PLIMSOLL_{name}: .*{says}"):
        Settings.from_env({f"PLIMSOLL_{name}": value})


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_env({"PLIMSOLL_PROMETHEUS_URL": "https://user:pa55@prom.example.com"})
    assert "pa55" not in str(caught.value)
