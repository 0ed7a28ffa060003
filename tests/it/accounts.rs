//! Links and requests under attack: guesses with rollbacks and crashes, many sessions at one link, thousands of forged
//! links; and requests for links, from the call to the mail, with the worker that answers them.

mod guesses;
mod requests;

/// Pseudo-random numbers that are the same in every run: xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    fn characters(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length)
            .map(|_| char::from(alphabet[self.below(alphabet.len())]))
            .collect()
    }
}
