#!/usr/bin/env python3
"""Draws a flame graph: `perf script` on standard input, SVG on standard output. Needs nothing beside Python."""
import html
import re
import sys

WIDTH, ROW, FONT = 1400, 17, 11


def stacks(lines):
    """Yields each sample's stack, outermost function first."""
    stack = []
    for line in lines:
        if not line.strip():
            if stack:
                yield stack[::-1]
            stack = []
        elif line[0] in " \t":
            match = re.match(r"\s*[0-9a-f]+ (.*) \(", line)
            if match:
                name = re.sub(r"\+0x[0-9a-f]+$", "", match.group(1))
                stack.append(re.sub(r"::h[0-9a-f]{16}$", "", name))
    if stack:
        yield stack[::-1]


def tree(samples):
    """Sums the stacks up: [count, {name: node}]."""
    root = [0, {}]
    for stack in samples:
        node = root
        node[0] += 1
        for name in stack:
            node = node[1].setdefault(name, [0, {}])
            node[0] += 1
    return root


def depth(node):
    return 1 + max((depth(child) for child in node[1].values()), default=0)


def draw(name, node, x, y, scale, total, out):
    width = node[0] * scale
    if width < 0.4:
        return
    share = 100.0 * node[0] / total
    colour = "hsl(%d,70%%,%d%%)" % (sum(name.encode()) * 7 % 50, 62 + sum(name.encode()) % 12)
    label = html.escape(name[: int(width / 6.2)]) if width > 30 else ""
    out.append(
        f'<g><title>{html.escape(name)}: {share:.2f} %</title>'
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{colour}"/>'
        f'<text x="{x + 3:.1f}" y="{y + ROW - 5}">{label}</text></g>'
    )
    for child, below in sorted(node[1].items()):
        draw(child, below, x, y - ROW, scale, total, out)
        x += below[0] * scale


def main():
    sys.setrecursionlimit(10_000)
    root = tree(stacks(sys.stdin))
    if root[0] == 0:
        sys.exit("flamegraph: perf recorded no sample")
    height = (depth(root) + 2) * ROW
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="monospace" font-size="{FONT}">',
        f'<text x="4" y="{ROW - 4}">{html.escape(" ".join(sys.argv[1:]))}: {root[0]} samples</text>',
    ]
    draw("all", root, 0, height - ROW, WIDTH / root[0], root[0], out)
    out.append("</svg>")
    print("\n".join(out))


if __name__ == "__main__":
    main()
