"""The fake's metrics page has the names, labels and buckets of the recorded one."""

from e2e.fleet import metrics_page, recordings
from e2e.fleet.metrics_page import MetricsPage

NAME = "served"


def page() -> MetricsPage:
    return MetricsPage(NAME, 131_072, {"num_gpu_blocks": "77"})


def shapes(text: str) -> set[tuple[str, tuple[str, ...]]]:
    return {(sample.name, tuple(name for name, _ in sample.labels)) for sample in metrics_page.samples(text)}


def value(text: str, series: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(series))


def test_names_and_labels_equal_the_recorded_page() -> None:
    assert shapes(page().render()) == shapes(recordings.metrics_page())


def test_type_lines_stand_before_their_series() -> None:
    declared: set[str] = set()
    for line in page().render().splitlines():
        if line.startswith("# TYPE"):
            declared.add(line.split()[2])
        elif line.startswith("vllm:") and "_bucket" in line:
            assert line.partition("_bucket")[0] in declared, line


def test_counters_gauges_and_the_configuration() -> None:
    metrics = page()
    metrics.count("num_preemptions", 3)
    metrics.count("request_success", finished_reason="length")
    metrics.gauge("kv_cache_usage_perc", 0.5)
    text = metrics.render()
    assert value(text, f'vllm:num_preemptions_total{{engine="0",model_name="{NAME}"}}') == 3
    assert value(text, 'vllm:request_success_total{engine="0",finished_reason="length"') == 1
    assert value(text, 'vllm:request_success_total{engine="0",finished_reason="abort"') == 0
    assert value(text, "vllm:kv_cache_usage_perc{") == 0.5
    assert 'num_gpu_blocks="77"' in next(line for line in text.splitlines() if line.startswith(metrics_page.INFO))


def test_histograms_are_cumulative() -> None:
    metrics = page()
    for seconds in (0.03, 0.03, 0.3, 100):
        metrics.observe("inter_token_latency_seconds", seconds)
    text, series = metrics.render(), "vllm:inter_token_latency_seconds"
    assert value(text, f'{series}_bucket{{engine="0",le="0.025"') == 0
    assert value(text, f'{series}_bucket{{engine="0",le="0.05"') == 2
    assert value(text, f'{series}_bucket{{engine="0",le="0.3"') == 3
    assert value(text, f'{series}_bucket{{engine="0",le="+Inf"') == value(text, f"{series}_count") == 4
    assert value(text, f"{series}_sum") == 100.36


def test_token_buckets_reach_the_models_length() -> None:
    edges = [
        dict(sample.labels)["le"]
        for sample in metrics_page.samples(page().render())
        if sample.name == "vllm:request_prompt_tokens_bucket"
    ]
    assert edges[-2:] == ["100000.0", "+Inf"]


def test_faulty_pages() -> None:
    text = page().render()
    assert "vllm:kv_cache_usage_perc" not in metrics_page.old_names(text)
    assert "vllm:gpu_cache_usage_perc" in metrics_page.old_names(text)
    broken = metrics_page.not_a_number(text).splitlines()
    assert all(line.endswith(" NaN") for line in broken if line.startswith("vllm:"))
    twice = metrics_page.samples(metrics_page.duplicated(text))
    assert sum(sample.name == "vllm:num_requests_running" for sample in twice) == 2
