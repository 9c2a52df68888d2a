
import org.apache.lucene.analysis.*; import org.apache.lucene.analysis.tokenattributes.*; import org.apache.lucene.analysis.standard.*;
import java.io.*; import java.util.*;
public class Classic {
  static Tokenizer t; static CharTermAttribute term; static TypeAttribute type;
  static { try { t = new ClassicTokenizer(org.apache.lucene.util.Version.LUCENE_46, new StringReader("")); } catch (Exception e) { throw new RuntimeException(e); } term = t.addAttribute(CharTermAttribute.class); type = t.addAttribute(TypeAttribute.class); }
  static String p(String s) throws IOException {
    t.setReader(new StringReader(s)); t.reset();
    String r = t.incrementToken() ? type.type().replace("<","").replace(">","") + term.length() : "-";
    while (t.incrementToken()) { r += "+" + term.length(); }
    t.end(); t.close(); return r;
  }
  public static void main(String[] a) throws Exception {
    Map<String,List<int[]>> m = new LinkedHashMap<>();
    for (int c = 0; c <= 0x10FFFF; c++) {
      if (c >= 0xD800 && c < 0xE000) continue;
      String x = new String(Character.toChars(c)); int n = x.length();
      String[] f = new String[] { x, x+"."+x+".", "a-"+x, "a"+x+"a", "a"+x+"1" };
      StringBuilder sb = new StringBuilder();
      for (String s : f) { String r = p(s); if (n==2) r = "("+r.replace(""+(s.length()),"ALL")+")"; else r = "("+r.replace(""+s.length(),"ALL")+")"; sb.append(r); }
      String k = sb.toString().replaceAll("\\d+", "n");
      m.computeIfAbsent(k, z -> new ArrayList<>());
      List<int[]> l = m.get(k);
      if (!l.isEmpty() && l.get(l.size()-1)[1] == c-1) l.get(l.size()-1)[1] = c; else l.add(new int[]{c,c});
    }
    for (Map.Entry<String,List<int[]>> e : m.entrySet()) { System.out.println(e.getKey()+" ranges="+e.getValue().size()); StringBuilder sb = new StringBuilder(); for (int[] r : e.getValue()) sb.append(String.format(r[0]==r[1]?"%x ":"%x-%x ", r[0], r[1])); System.out.println("  "+sb); }
  }
}
