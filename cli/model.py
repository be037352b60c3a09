"""Commands on an .onnx file and on what taskc knows: `taskc check`, `explain`, `ops`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from taskc.check import check_model
from taskc.explain import Explained, GroupFacts, SpaceFacts, explain, spaces
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
@click.option("--node", metavar="NAME", help="Only the kernels that compute a node with NAME in its name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain_command(model: Path, target: str, shapes: tuple[str, ...], dims: tuple[str, ...], sizes: tuple[str, ...], node: str | None,
                    as_json: bool) -> None:
    """Show how MODEL (.onnx) would be compiled: kernels, what was refused and why, schedules and the nearest others, ports."""
    found = {t: explain(model, t, shapes=parse_shapes(shapes), dims=parse_dims(dims), sizes=parse_dims(sizes, "--tune-for"))
             for t in parse_targets(target)}
    if node is not None:
        found = {t: e.about(node) for t, e in found.items()}
    if as_json:
        click.echo(json.dumps({t: [asdict(g) for g in e.groups] for t, e in found.items()}, indent=2))
        return
    for explained in found.values():
        _print_explained(explained)


def _print_explained(e: Explained) -> None:
    predicted = sum(g.schedules[0][1] for g in e.groups if g.schedules)
    click.echo(f"target {e.target}: {len(e.groups)} kernels in {e.launches} launches, {predicted:.0f} us predicted in all")
    for number, group in enumerate(e.groups):
        click.echo(_group_text(number, group))
    for r in e.refusals:
        click.echo(f"  not rewritten: {r.rule} at {r.node}: {r.reason}")


def _group_text(number: int, g: GroupFacts) -> str:
    lines = [f"{number:4d}  {g.kind} {' + '.join(g.nodes)}"]
    lines += [f"        joined: {j}" for j in g.joined]
    lines += [f"        not fused: {r}" for r in g.refused]
    if not g.template:
        lines.append("        no template computes it")
    for place, (schedule, us) in enumerate(g.schedules):
        lines.append(f"        {g.template if not place else 'next':>6}: {schedule} ({us:.2f} us predicted)")
    lines += [f"        in one launch with {s}" for s in g.shares]
    lines += [f"        not in one launch with {g.apart}"] if g.apart else []
    lines += [f"        port {name}: {access}" for name, access in g.ports]
    lines += [f"        not {t}" for t in g.templates_refused]
    return "\n".join(lines)


@click.command("ops")
@click.argument("word", required=False)
@click.option("--schedules", "with_schedules", is_flag=True, help="List the kernel templates and their schedules instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ops_command(word: str | None, with_schedules: bool, as_json: bool) -> None:
    """List the ONNX operators taskc reads, those with WORD in the name, and from which opset on."""
    if with_schedules:
        _print_spaces([f for f in spaces() if word is None or word.lower() in f.template], word is not None, as_json)
        return
    load_operators()
    found = {(f"{domain}::" if domain else "") + name: [r.since for r in readers] for (domain, name), readers in sorted(READERS.items())
             if word is None or word.lower() in name.lower()}
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    print_table(("operator", "from opset"), [(name, ", ".join(map(str, since))) for name, since in found.items()])
    click.echo(f"{len(found)} operators; operators that ONNX defines by others (functions) are read through those")


def _print_spaces(found: list[SpaceFacts], each: bool, as_json: bool) -> None:
    """Counts for each template, target and operand type; with `each` the schedules too, and where they are legal."""
    if as_json:
        click.echo(json.dumps([asdict(f) for f in found], indent=2))
        return
    print_table(("template", "target", "operands", "legal schedules"), [(f.template, f.target, f.operand, str(len(f.schedules))) for f in found])
    legal: dict[tuple[str, str], list[str]] = {}
    for f in found if each else ():
        for s in f.schedules:
            legal.setdefault((f.template, s), []).append(f"{f.target} {f.operand}")
    for (template, schedule), where in legal.items():
        click.echo(f"{template} {schedule}: {', '.join(where)}")
    if not each:
        click.echo("`taskc ops --schedules TEMPLATE` lists the schedules themselves")
