//! How many requests the edge holds at once.

use std::sync::Arc;

use protocol::{Refusal, RefusalKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Counts requests between admission and their last byte; beyond the bound a request is refused at once.
#[derive(Debug)]
pub struct Throttle {
    places: Arc<Semaphore>,
    requests_max: usize,
}

/// A request's place; given back when dropped.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Throttle {
    /// Lets `requests_max` requests in at once.
    pub fn new(requests_max: usize) -> Self {
        Throttle { places: Arc::new(Semaphore::new(requests_max)), requests_max }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// There is none.
    pub fn enter(&self) -> Result<Place, Refusal> {
        Arc::clone(&self.places).try_acquire_owned().map(Place).map_err(|_| {
            let message =
                format!("{} requests are being served, as many as may be; come back soon", self.requests_max);
            Refusal::new(RefusalKind::Unavailable, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_is_refused_until_a_place_is_given_back() {
        let throttle = Throttle::new(1);
        let place = throttle.enter().unwrap();
        assert_eq!(throttle.enter().unwrap_err().kind, RefusalKind::Unavailable);
        drop(place);
        assert!(throttle.enter().is_ok());
    }
}
