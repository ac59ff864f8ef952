//! Times by powers of two and 32 steps between them: 3 % wide at most, a fixed 15 KiB, nothing allocated while counting.

/// Steps between two powers of two, as bits.
const STEP_BITS: u32 = 5;
const STEPS: usize = 1 << STEP_BITS;
const PLACES: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Counts of values from 0 to 2^64 - 1.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; PLACES]>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; PLACES]), total: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts `n` times `value`.
    #[inline(always)]
    pub fn add_n(&mut self, value: u64, n: u64) {
        // Invariant: `place` is below PLACES for every value.
        if let Some(count) = self.counts.get_mut(place(value)) {
            *count += n;
        }
        self.total += n;
        self.max = self.max.max(value);
    }

    /// Counts a value.
    #[inline(always)]
    pub fn add(&mut self, value: u64) {
        self.add_n(value, 1);
    }

    /// Counts all that another one has counted.
    pub fn add_all(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(mine, more)| *mine += more);
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// Values counted.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The largest value, exactly; 0 when there is none.
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// A value that this share (0.0 to 1.0) of all is at or below: the upper end of its step, never above the maximum.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(place).min(self.max);
            }
        }
        self.max
    }
}

/// Small values have a place each; larger ones the place of their leading bits.
#[inline(always)]
const fn place(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let power = 63 - value.leading_zeros();
    let within = (value >> (power - STEP_BITS)) as usize & (STEPS - 1);
    (power - STEP_BITS + 1) as usize * STEPS + within
}

const fn upper_end(place: usize) -> u64 {
    if place < STEPS {
        return place as u64;
    }
    let shift = (place / STEPS - 1) as u32;
    let from = ((STEPS + place % STEPS) as u64) << shift;
    from + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_place_at_most_a_thirtysecond_wide() {
        for value in (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) + 1, (1u64 << bit).wrapping_mul(3) / 2])
        {
            let end = upper_end(place(value));
            assert!(end >= value && end - value <= value / 32, "{value}: {end}");
            assert!(place(value) < PLACES);
        }
        assert_eq!(place(u64::MAX), PLACES - 1);
        assert_eq!(upper_end(PLACES - 1), u64::MAX);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values_within_a_step() {
        let mut histogram = Histogram::default();
        let values: Vec<u64> = (1..=10_000).map(|n| n * n % 99_991).collect();
        values.iter().for_each(|value| histogram.add(*value));
        let mut sorted = values;
        sorted.sort_unstable();
        for share in [0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = sorted[((sorted.len() as f64 * share).ceil() as usize).max(1) - 1];
            let got = histogram.quantile(share);
            assert!(got >= exact && got as f64 <= exact as f64 * 1.04 + 1.0, "{share}: {got} not {exact}");
        }
        assert_eq!(histogram.quantile(1.0), *sorted.last().unwrap());
    }

    #[test]
    fn an_empty_histogram_says_zero() {
        assert_eq!((Histogram::default().quantile(0.999), Histogram::default().max()), (0, 0));
    }
}
