//! Every committed corpus and crash input runs through its target, for ever.

use std::fs;
use std::path::{Path, PathBuf};

use carrack_fuzz_targets::{TARGETS, run};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return vec![] };
    let mut files: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

#[test]
fn every_corpus_and_crash_input_runs_through_its_target() {
    for (name, _) in TARGETS {
        let corpus = files(&fuzz().join("corpus").join(name));
        assert!(!corpus.is_empty(), "target {name} has no corpus");
        for path in corpus.into_iter().chain(files(&fuzz().join("crashes").join(name))) {
            // Printed only when the test fails: the last one named is the culprit.
            println!("{name}: {}", path.display());
            run(name, &fs::read(&path).unwrap());
        }
    }
}

#[test]
fn every_crash_input_is_described() {
    let text = fs::read_to_string(fuzz().join("crashes/README.md")).unwrap();
    for (name, _) in TARGETS {
        for path in files(&fuzz().join("crashes").join(name)) {
            let file = format!("{name}/{}", path.file_name().unwrap().to_str().unwrap());
            assert!(text.contains(&file), "{file} is not described in fuzz/crashes/README.md");
        }
    }
}

/// A target without a program of its own would never be fuzzed.
#[test]
fn every_target_has_its_program() {
    for (name, _) in TARGETS {
        assert!(fuzz().join(format!("fuzz_targets/{name}.rs")).is_file(), "{name}");
    }
}

/// A little noise over the corpora, so that the targets are worth running where no fuzzer is installed.
/// `CARRACK_NOISE` says how many inputs for each target.
#[test]
fn a_little_noise_over_the_corpora_breaks_nothing() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let count = std::env::var("CARRACK_NOISE").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for (name, _) in TARGETS {
        let corpus: Vec<_> =
            files(&fuzz().join("corpus").join(name)).iter().map(|path| fs::read(path).unwrap()).collect();
        for _ in 0..count {
            let mut input = corpus[random() % corpus.len()].clone();
            for _ in 0..1 + random() % 8 {
                if !input.is_empty() {
                    let at = random() % input.len();
                    input[at] = random() as u8;
                }
            }
            let shown = input.clone();
            let result = std::panic::catch_unwind(move || run(name, &input));
            assert!(result.is_ok(), "{name}: {shown:?}");
        }
    }
}
