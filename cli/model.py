"""Commands on an .onnx file and on what taskc knows: `taskc check`, `explain`, `ops`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from taskc.check import check_model
from taskc.explain import GroupFacts, explain
from taskc.ops.registry import READERS, load_operators

from .options import PATH, model_options, parse_dims, parse_shapes, parse_targets, target_option
from .text import print_table


@click.command("check")
@click.argument("model", type=PATH)
@target_option("sm_90a,host")
@model_options
def check_command(model: Path, target: str, shapes: tuple[str, ...], dims: tuple[str, ...]) -> None:
    """Say whether MODEL (.onnx) compiles: every node that does not, with the reason. Exit code 4 when one does not."""
    report = check_model(model, parse_targets(target), shapes=parse_shapes(shapes), dims=parse_dims(dims))
    count = sum(report.operators.values())
    click.echo(f"{report.name}: all {count} nodes can be compiled for {', '.join(report.targets)}")
    click.echo(f"  inputs   {'; '.join(report.inputs)}\n  outputs  {'; '.join(report.outputs)}")
    click.echo(f"  nodes    {', '.join(f'{n} {name}' for name, n in report.operators.items())}")


@click.command("explain")
@click.argument("model", type=PATH)
@target_option()
@model_options
@click.option("--tune-for", "sizes", multiple=True, metavar="NAME=SIZE", help="The size of a symbolic dim that schedules are ranked for.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain_command(model: Path, target: str, shapes: tuple[str, ...], dims: tuple[str, ...], sizes: tuple[str, ...],
                    as_json: bool) -> None:
    """Show how MODEL (.onnx) would be compiled: kernels, what fusion refused and why, schedules and the nearest others."""
    groups = {t: explain(model, t, shapes=parse_shapes(shapes), dims=parse_dims(dims), sizes=parse_dims(sizes, "--tune-for"))
              for t in parse_targets(target)}
    if as_json:
        click.echo(json.dumps({t: [asdict(g) for g in found] for t, found in groups.items()}, indent=2))
        return
    for name, found in groups.items():
        click.echo(f"target {name}: {len(found)} kernels")
        for number, group in enumerate(found):
            click.echo(_group_text(number, group))


def _group_text(number: int, g: GroupFacts) -> str:
    lines = [f"{number:4d}  {g.kind} {' + '.join(g.nodes)}"]
    lines += [f"        joined: {j}" for j in g.joined]
    lines += [f"        not fused: {r}" for r in g.refused]
    if not g.template:
        lines.append("        no template computes it")
    for place, (schedule, us) in enumerate(g.schedules):
        lines.append(f"        {g.template if not place else 'next':>6}: {schedule} ({us:.2f} us predicted)")
    lines += [f"        not {t}" for t in g.templates_refused]
    return "\n".join(lines)


@click.command("ops")
@click.argument("word", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ops_command(word: str | None, as_json: bool) -> None:
    """List the ONNX operators taskc reads, those with WORD in the name, and from which opset on."""
    load_operators()
    found = {(f"{domain}::" if domain else "") + name: [r.since for r in readers] for (domain, name), readers in sorted(READERS.items())
             if word is None or word.lower() in name.lower()}
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    print_table(("operator", "from opset"), [(name, ", ".join(map(str, since))) for name, since in found.items()])
    click.echo(f"{len(found)} operators; operators that ONNX defines by others (functions) are read through those")
