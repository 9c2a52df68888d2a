
use functions::projection::Projection;
fn main() {
    let size: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let pieces = [
        "(", "[", "{", "!", "-", "a=>", "a?b:", "if(a)", "a=", "new ", "a+", "a**", "`${", "a.b.", "f(", "x[", "...",
        "({a:", "function(){", "while(1)", "typeof ", "else ", "async()=>", "class{a=", "a||", "a??", "a,", "[a,", "a:", "do ",
        "()=>{", "{a(){", "(a=", "[...", "for(;;)", "try{", "switch(a){case ", "await ", "yield ", "a\n", "/a/+", "/*", "a?.b",
        "({get a(){", "a`${", "<", "return ", "let[", "var{a:", "class a extends ", "@a", "import(", "a<b>", "+", "~", "++",
    ];
    let go = |name: String, source: String| {
        let start = std::time::Instant::now();
        eprintln!("{name:?}");
        let ok = Projection::analyse(&source).is_ok();
        let t = start.elapsed();
        if t.as_millis() > 20 { println!("{name:?} {} bytes {ok} {t:?}", source.len()); }
    };
    for piece in pieces {
        for (before, after) in [("function (doc) {", "}"), ("", ""), ("doc => ", "")] {
            let room = size - before.len() - after.len();
            go(format!("{before}{piece}"), format!("{before}{}{after}", piece.repeat(room / piece.len())));
        }
    }
    for piece in ["(a=", "(", "[", "{", "({a:", "async(", "(a,", "(a=>"] {
        let group = format!("{}1{};", piece.repeat(90/piece.matches(['(','[','{']).count()), "".to_string());
        let close: String = group.chars().rev().filter_map(|c| match c {'('=>Some(')'),'['=>Some(']'),'{'=>Some('}'),_=>None}).collect();
        let group = format!("{}{close};", &group[..group.len()-1]);
        go(format!("groups {piece}"), format!("function (doc) {{ {} }}", group.repeat(size / group.len() - 1)));
    }
    for (open, close) in [("(", ")"), ("[", "]"), ("!", ""), ("-", ""), ("a+", ""), ("{", "}"), ("if(a)", ";"), ("a=>", ""), ("a?a:", ""),
        ("a=", ""), ("f(", ")"), ("x[", "]"), ("{a:", "}"), ("()=>(", ")"), ("a**", ""), ("a,", ""), ("a||", ""), ("[[", "]]"), ("typeof ", ""), ("(a,", ")"), ("(a=>", ")"), ("async(", ")"), ("(a=", ")")]
    {
        let count = (size-30) / (open.len() + close.len());
        let core = if open == "{" { "" } else { "1" };
        for (before, after) in [("function (doc) { ", " }"), ("function (doc) { x = ", " }")] {
            go(format!("{before}{open}{close}"), format!("{before}{}{core}{}{after}", open.repeat(count), close.repeat(count)));
        }
    }
}
