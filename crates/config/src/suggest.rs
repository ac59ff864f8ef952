//! The nearest word to a misspelt one.

/// The nearest of `candidates` to `word`, when it is near enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are never a slip of the hand, and the distance costs their product.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| {
            let slip = *distance <= (candidate.len().max(word.len()) / 3).max(1);
            // A unit or a qualifier too many or too few: `udp_s` for `udp`.
            let longer = candidate.len() > 2 && word.starts_with(*candidate);
            slip || longer || (word.len() > 2 && candidate.starts_with(&word))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean …?` or, with nothing near, the words to choose from.
pub(crate) fn hint<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(word, candidates.clone()) {
        return format!("did you mean `{near}`?");
    }
    let all: Vec<String> = candidates.into_iter().map(|c| format!("`{c}`")).collect();
    match all.len() {
        0 => "none is defined; add one or remove the reference".to_owned(),
        1..=24 => format!("choose from {}", all.join(", ")),
        _ => format!("choose one of the {} that are defined", all.len()),
    }
}
