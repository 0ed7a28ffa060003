//! Who goes first.

/// Has each of several run once, another one first in each turn; returns what they came to, in their own order.
pub fn in_turn<T, const N: usize>(turn: usize, mut run: impl FnMut(usize) -> T) -> [T; N] {
    let mut results = [const { None }; N];
    for place in 0..N {
        let which = (turn + place) % N;
        results[which] = Some(run(which));
    }
    results.map(|result| result.expect("each ran"))
}
