//! llama.cpp's programs, built once from its Python package's source into the user's cache folder.
//!
//! A fair peer has its tile kernels (AMX) on, and a build loses them easily. GCC 12's build traps at the first use of a
//! tile. clang 14 builds without them and says nothing, because it defines `__AMXINT8__` where llama.cpp asks for
//! `__AMX_INT8__`. So clang is used, what it does not define is defined for it, and the result is looked into.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, exists};

const PACKAGE: &str = "llama-cpp-python";
const VERSION: &str = "0.3.36";
const PROGRAMS: [&str; 3] = ["llama-server", "llama-bench", "llama-batched-bench"];
const VARIABLE: &str = "FIRSTLIGHT_LLAMA_CPP";
const OPTIONS: [&str; 7] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
];
/// A function of the tile kernels, there only if they were compiled.
const TILE_SYMBOL: &[u8] = b"ggml_backend_amx_mul_mat";
const TILE_MACROS: [&str; 3] = ["__AMX_TILE__", "__AMX_INT8__", "__AMX_BF16__"];

/// A folder of programs and of the libraries they need.
pub struct Binaries {
    pub folder: PathBuf,
    /// What is to be known of the build.
    pub note: String,
}

impl Binaries {
    /// One of the programs, which finds its libraries beside it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.env("LD_LIBRARY_PATH", &self.folder);
        command
    }
}

/// The programs from where the user says, or from the cache folder, built if they are not there.
pub fn binaries() -> Result<Binaries> {
    let folder = match std::env::var_os(VARIABLE) {
        Some(folder) => PathBuf::from(folder),
        None => built()?,
    };
    if let Some(missing) = PROGRAMS.iter().find(|program| !folder.join(program).is_file()) {
        bail!(
            "{} has no {missing}; {VARIABLE} wants the folder of llama.cpp's built programs ({})",
            folder.display(),
            PROGRAMS.join(", ")
        );
    }
    let note = note(&processor_flags(), has_tiles(&folder));
    Ok(Binaries { folder, note })
}

/// `FIRSTLIGHT_CACHE`, or `firstlight` in the user's cache folder, as the catalogue has it.
pub fn cache_folder() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("FIRSTLIGHT_CACHE") {
        return Ok(folder);
    }
    let in_home = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(in_home)));
    Ok(base.context("neither FIRSTLIGHT_CACHE, XDG_CACHE_HOME nor HOME is set")?.join("firstlight"))
}

/// Builds what is not there yet. The folder of programs is given its name at the end, so that one that is there is whole.
fn built() -> Result<PathBuf> {
    let home = cache_folder()?.join("peers").join(format!("llama.cpp-{VERSION}"));
    let (source, build, complete) = (home.join("source"), home.join("build"), home.join("complete"));
    let folder = build.join("bin");
    if complete.is_file() {
        return Ok(folder);
    }
    let python = tools()?;
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    if !source.is_dir() {
        fetch(python, &home, &source)?;
    }
    configure(&source, &build)?;
    eprintln!("building llama.cpp; this takes a quarter of an hour of processor time, once");
    command::run(Command::new("ninja").arg("-C").arg(&build).args(PROGRAMS))?;
    if wants_tiles(&processor_flags()) && has_tiles(&folder) == Some(false) {
        bail!(
            "llama.cpp was built without its AMX kernels, which this processor has; see {}",
            build.display()
        );
    }
    fs::write(&complete, VERSION).with_context(|| format!("cannot write {}", complete.display()))?;
    Ok(folder)
}

/// What building needs; returns the Python to fetch with.
fn tools() -> Result<&'static str> {
    let python = ["python3", "python"].into_iter().find(|name| exists(name, &["-m", "pip", "--version"]));
    let needed = [("cmake", "cmake"), ("ninja", "ninja-build"), ("clang", "clang"), ("clang++", "clang")];
    let mut missing: Vec<&str> = needed
        .into_iter()
        .filter(|(program, _)| !exists(program, &["--version"]))
        .map(|(_, package)| package)
        .collect();
    if python.is_none() {
        missing.push("python3-pip");
    }
    missing.dedup();
    match python {
        Some(python) if missing.is_empty() => Ok(python),
        _ => bail!("{}", what_to_install(&missing)),
    }
}

fn what_to_install(missing: &[&str]) -> String {
    format!(
        "building llama.cpp needs what is not here; on Debian: apt install {}\n(or set {VARIABLE} to a folder with {})",
        missing.join(" "),
        PROGRAMS.join(", ")
    )
}

/// Lays llama.cpp's source from the package into `source`.
fn fetch(python: &str, home: &Path, source: &Path) -> Result<()> {
    let scratch = home.join("scratch");
    // Left by a run that was interrupted.
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let from_source = format!("--no-binary={PACKAGE}");
    let options =
        ["-m", "pip", "download", "--no-deps", &from_source, "--no-cache-dir", "--disable-pip-version-check"];
    let wanted = format!("{PACKAGE}=={VERSION}");
    command::run(Command::new(python).args(options).arg("-d").arg(&scratch).arg(wanted))?;
    let archive = entry(&scratch, |name| name.ends_with(".tar.gz"))?;
    command::run(Command::new(python).args(["-m", "tarfile", "-e"]).arg(archive).arg(&scratch))?;
    let package = entry(&scratch, |name| !name.ends_with(".tar.gz"))?;
    let inside = package.join("vendor").join("llama.cpp");
    fs::rename(&inside, source)
        .with_context(|| format!("{PACKAGE} {VERSION} has no {}", inside.display()))?;
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// The first entry of a folder whose name is wanted.
fn entry(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            return Ok(entry.path());
        }
    }
    bail!("{} does not hold what it should", folder.display())
}

fn configure(source: &Path, build: &Path) -> Result<()> {
    let macros = Command::new("clang").args(["-march=native", "-dM", "-E", "-x", "c", "/dev/null"]).output();
    let macros = macros.context("could not ask clang for its macros")?.stdout;
    let flags = tile_flags(&processor_flags(), &String::from_utf8_lossy(&macros)).join(" ");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(source).arg("-B").arg(build).args(["-G", "Ninja"]).args(OPTIONS);
    cmake.args(["-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++"]);
    cmake.args([format!("-DCMAKE_C_FLAGS={flags}"), format!("-DCMAKE_CXX_FLAGS={flags}")]);
    command::run(&mut cmake)
}

/// The macros to define by hand: those of the tile kernels, on a processor that has them, where the compiler does not.
fn tile_flags(processor: &str, macros: &str) -> Vec<String> {
    let defined = |name: &str| macros.lines().any(|line| line.split(' ').nth(1) == Some(name));
    if !wants_tiles(processor) || defined("__AMX_INT8__") {
        return Vec::new();
    }
    TILE_MACROS.iter().filter(|name| !defined(name)).map(|name| format!("-D{name}")).collect()
}

fn wants_tiles(processor: &str) -> bool {
    processor.split_whitespace().any(|flag| flag == "amx_int8")
}

/// The processor's flags as Linux lists them; empty elsewhere.
fn processor_flags() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().find(|line| line.starts_with("flags")).unwrap_or_default().to_owned()
}

/// Whether the tile kernels are in the built library, or in the program where it is one piece; None if neither can be read.
fn has_tiles(folder: &Path) -> Option<bool> {
    let files = ["libggml-cpu.so", "llama-bench"].map(|name| fs::read(folder.join(name)).ok());
    let bytes = files.into_iter().flatten().next()?;
    Some(bytes.windows(TILE_SYMBOL.len()).any(|window| window == TILE_SYMBOL))
}

fn note(processor: &str, tiles: Option<bool>) -> String {
    let note = match (wants_tiles(processor), tiles) {
        (true, Some(true)) => "its AMX kernels are built in",
        (true, Some(false)) => "WITHOUT its AMX kernels, which this processor has: not a fair peer",
        (true, None) => "whether its AMX kernels are built in could not be seen",
        (false, _) => "this processor has no AMX, so neither engine uses it",
    };
    note.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMX: &str = "flags\t\t: fpu avx512_vnni amx_bf16 amx_tile amx_int8";

    #[test]
    fn macros_are_defined_only_for_a_processor_with_tiles_and_a_compiler_without() {
        let clang14 = "#define __AMXINT8__ 1\n#define __AMXTILE__ 1\n";
        assert_eq!(tile_flags(AMX, clang14), ["-D__AMX_TILE__", "-D__AMX_INT8__", "-D__AMX_BF16__"]);
        let later = "#define __AMX_BF16__ 1\n#define __AMX_INT8__ 1\n#define __AMX_TILE__ 1\n";
        assert_eq!(tile_flags(AMX, later), Vec::<String>::new());
        assert_eq!(tile_flags("flags : avx2", clang14), Vec::<String>::new());
        assert_eq!(tile_flags("flags : amx_int8_of_another_kind", clang14), Vec::<String>::new());
    }

    #[test]
    fn a_build_that_lost_its_tiles_is_called_unfair() {
        assert!(note(AMX, Some(false)).contains("not a fair peer"));
        assert!(note(AMX, Some(true)).contains("built in"));
        assert!(note("", Some(false)).contains("no AMX"));
    }

    #[test]
    fn what_is_missing_is_named_in_one_line_to_type() {
        let said = what_to_install(&["cmake", "ninja-build"]);
        assert!(said.contains("apt install cmake ninja-build\n") && said.contains(VARIABLE), "{said}");
    }

    #[test]
    fn a_folder_shows_whether_its_library_has_tiles() {
        let folder = std::env::temp_dir().join(format!("firstlight-peers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(has_tiles(&folder), None);
        fs::write(folder.join("libggml-cpu.so"), b"..ggml_backend_amx_mul_mat..").unwrap();
        assert_eq!(has_tiles(&folder), Some(true));
        fs::write(folder.join("libggml-cpu.so"), b"..ggml_backend_amx..").unwrap();
        assert_eq!(has_tiles(&folder), Some(false));
        fs::remove_dir_all(&folder).unwrap();
    }
}
