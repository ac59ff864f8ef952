//! Keeps the project's own promises: `compliance`, `counters`, `instructions` and `layering`. A tool for developers, not shipped.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use carrack_xtask::{compliance, counters, instructions, layering, workspace_root};
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo run -p carrack-xtask -- <command>

Commands:
  compliance           write docs/compliance.md from docs/requirements/*.toml and the citations in code and tests
  compliance --check   write nothing; fail when the file is stale, or a claim lacks its code or its test
  counters             write docs/counters.md from the table of reasons
  counters --check     write nothing; fail when the file is stale, or names a metric that is not served
  instructions         count instructions a packet (valgrind) and show them beside benches/instructions.toml
  instructions --check the same; fail when a case takes over 3 % more
  instructions --write write the counts as the new baseline
  layering             fail on upward dependencies, unsafe code, long files and hidden clocks";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let root = workspace_root();
    match arguments {
        ["compliance"] => {
            let path = root.join(compliance::REPORT_PATH);
            let report = compliance::generate(&root)?;
            std::fs::write(&path, &report.text).with_context(|| format!("writing {}", path.display()))?;
            println!("{}: {}", compliance::REPORT_PATH, report.summary);
            for gap in &report.gaps {
                println!("  {gap}");
            }
            Ok(())
        }
        ["compliance", "--check"] => fail_on("compliance", compliance::check(&root)?),
        ["counters"] => {
            let path = root.join(counters::PAGE_PATH);
            std::fs::write(&path, counters::page()).with_context(|| format!("writing {}", path.display()))?;
            println!("{}: {} reasons", counters::PAGE_PATH, carrack_base::REASONS.len());
            Ok(())
        }
        ["counters", "--check"] => fail_on("counters", counters::check(&root)?),
        ["instructions", option @ ..] => instructions(&root, option),
        ["layering"] => fail_on("layering", layering::check(&root)?),
        [] | ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("unknown command '{}'\n\n{USAGE}", other.join(" ")),
    }
}

fn instructions(root: &std::path::Path, option: &[&str]) -> Result<()> {
    let path = root.join(instructions::BASELINE_PATH);
    if !matches!(option, [] | ["--check" | "--write"]) {
        bail!("unknown option '{}'\n\n{USAGE}", option.join(" "));
    }
    let (compiler, counts) = (instructions::compiler()?, instructions::measure(root)?);
    if option == ["--write"] {
        let baseline = instructions::Baseline { compiler, instructions_per_packet: counts };
        std::fs::write(&path, baseline.text()).with_context(|| format!("writing {}", path.display()))?;
        print!("{}", baseline.text());
        return Ok(());
    }
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("reading {}: write it with `instructions --write`", path.display()))?;
    let comparison = instructions::compare(&instructions::Baseline::parse(&text)?, &counts, &compiler);
    print!("{}", comparison.table);
    if option == ["--check"] { fail_on("instructions", comparison.problems) } else { Ok(()) }
}

fn fail_on(what: &str, problems: Vec<String>) -> Result<()> {
    if problems.is_empty() {
        println!("{what}: ok");
        return Ok(());
    }
    bail!("{what}: {} problem(s)\n  {}", problems.len(), problems.join("\n  "))
}
