//! How workloads are asked for.

use load::adapter::Endpoint;
use load::workload::{Material, Setting, Spec};

use crate::support::setting;

#[test]
fn a_specification_reads_back_as_it_is_shown() {
    for spec in [
        "synthetic:in=200,out=64",
        "synthetic:in=lognormal(200,0.5,1..1048576),out=uniform(16..128),calls=1000",
        "prefix:groups=4,prefix=1000,in=50,out=32",
        "sessions:sessions=16,turns=8,in=100,out=64",
        "sessions:sessions=16,turns=8,in=100,out=64,system=500,together=4",
        "agents:workflows=10,fan=4,context=2000,in=50,out=64",
        "file:a/b=c.jsonl",
        "file:x.jsonl,out=64,turns=first,shuffle=yes,repeat=forever,bad=skip",
        "file:x.jsonl,repeat=3",
    ] {
        assert_eq!(Spec::parse(spec).unwrap().to_string(), spec);
    }
}

#[test]
fn a_wrong_specification_is_told_what_is_wrong_and_what_would_do() {
    for (spec, expected) in [
        ("random:in=1,out=1", "there is no kind `random`"),
        ("synthetic:in=200", "`out=` is missing"),
        ("synthetic:200,out=1", "`in=` is missing"),
        ("synthetic:200,in=5,out=1", "`200` is not of the form key=value"),
        ("synthetic:in=uniform(5),out=1", "`in=uniform(5)`: `5` must be a range"),
        ("synthetic:in=5,out=1,groups=3", "`synthetic` has no option `groups`"),
        ("synthetic:in=5,out=1,calls=0", "`calls=0`: must be a whole number from 1 to"),
        ("prefix:groups=0,prefix=9,in=5,out=1", "`groups=0`: must be a whole number"),
        ("sessions:sessions=1,turns=2000,in=1,out=1", "`turns=2000`: must be a whole number from 1 to 1024"),
        ("agents:workflows=1,fan=4,in=1,out=1", "`context=` is missing"),
        ("file:", "the file is missing behind `file:`"),
        ("file:x,shuffle=1", "`shuffle=1`: must be yes or no"),
        ("file:x,repeat=0", "`repeat=0`: must be a whole number from 1 to 1000000000, or forever"),
        ("file:x,turns=all", "`turns=all`: must be first or last"),
        ("file:x,bad=ignore", "`bad=ignore`: must be skip or refuse"),
    ] {
        let told = Spec::parse(spec).unwrap_err().to_string();
        assert!(told.contains(expected), "{spec}: {told}");
        assert!(told.contains("prefix:groups=N,prefix=N,in=L,out=L"), "{told}");
    }
}

#[track_caller]
fn refuse(spec: &str, endpoint: Endpoint, material: Material, expected: &str) {
    let setting = Setting { endpoint, material, ..setting(1) };
    let told = Spec::parse(spec).unwrap().build(&setting).err().unwrap().to_string();
    assert!(told.contains(expected), "{told}");
}

#[test]
fn what_an_endpoint_cannot_carry_is_refused_before_the_run() {
    let sessions = "sessions:sessions=2,turns=2,in=5,out=5";
    refuse(sessions, Endpoint::Completions, Material::Words, "conversations need the chat endpoint");
    let ids = |vocabulary| Material::Ids { vocabulary };
    refuse("synthetic:in=5,out=5", Endpoint::Chat, ids(32_000), "only the completions endpoint takes");
    refuse("synthetic:in=5,out=5", Endpoint::Completions, ids(10), "a vocabulary of 10 tokens is too small");
}
