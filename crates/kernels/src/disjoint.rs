//! One mutable slice shared by the compute threads, each writing a part of its own.
//!
//! **Invariant:** the parts that are alive at one time do not overlap; whoever takes a part promises it.

use std::marker::PhantomData;
use std::ops::Range;

/// A slice whose parts may be written from several threads.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a `&mut [T]` that several threads may take apart; `part` leaves the proof of disjointness to its caller.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), borrow: PhantomData }
    }

    /// Where the slice begins, for parts that are not slices; what [`Disjoint::part`] asks for is asked of them too.
    pub fn as_mut_ptr(&self) -> *mut T {
        self.start
    }

    /// One part. Panics when it reaches beyond the slice.
    ///
    /// # Safety
    /// No other part that overlaps `range` may be alive as long as this one is.
    #[expect(clippy::mut_from_ref, reason = "handing out disjoint mutable parts is what this type is for")]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: in bounds by the check above, unaliased by the caller's promise, and the slice is borrowed for `'a`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}
