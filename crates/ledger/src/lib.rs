//! The ledger: at every instant between a request's first byte in and its last byte out, the request is charged to
//! exactly one [`Stage`], the stage that its next undelivered token is in.
//!
//! A token's way is a [`Timeline`]: stages in the order they were entered, each lasting until the next one begins. An
//! [`Account`] lays the timelines of all tokens end to end and charges to each only the time after the token before it
//! was delivered. What lies earlier overlapped with that delivery and is shown as hidden.
//!
//! **Invariant:** the charged stages of a [`Record`] sum to its end-to-end time exactly, in integer nanoseconds.

pub mod account;
pub mod cause;
pub mod clock;
pub mod delay;
pub mod record;
pub mod stage;
pub mod step;
pub mod timeline;

pub use account::Account;
pub use cause::{Cause, RequestId};
pub use clock::now_ns;
pub use record::{Charge, ChoiceRecord, Miss, Origin, OriginTokens, Outcome, PromptAccount, Record, Unit};
pub use stage::Stage;
pub use step::{Member, Part, Parts, StepId, StepRecord};
pub use timeline::{Segment, Timeline};
