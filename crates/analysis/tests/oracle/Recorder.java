// Records what Lucene makes of texts and queries, as test data of the crate `analysis`. Run by record.py, once with
// Lucene 4.6.1 and once with Lucene 9.12.1 on the class path; what differs between them is in the file Version.java of
// each (lucene4/Version.java, lucene9/Version.java).
//
// Reads lines of `kind TAB name TAB text` in which the text has Java's escapes, and writes a JSON line for each.

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.tokenattributes.*;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TopDocs;

public class Recorder {
  static final int HITS = 40;

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
    List<String[]> documents = new ArrayList<>();
    IndexSearcher searcher = null;
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split("\t", 3);
      String text = unescape(parts[2]);
      switch (parts[0]) {
        case "words":
          out.println("{\"analyzer\":" + json(parts[1]) + ",\"text\":" + json(text) + ",\"tokens\":" + tokens(Version.analyzer(parts[1]), text) + "}");
          break;
        case "query":
          String shown;
          try {
            shown = "\"query\":" + json(Version.query(parts[1], text));
          } catch (Exception | Error e) {
            shown = "\"error\":" + json(String.valueOf(e.getMessage()).split("\n")[0]);
          }
          out.println("{\"analyzer\":" + json(parts[1]) + ",\"text\":" + json(text) + "," + shown + "}");
          break;
        case "normalize":
          out.println("{\"analyzer\":" + json(parts[1]) + ",\"text\":" + json(text) + ",\"normalized\":" + json(Version.normalize(parts[1], text)) + "}");
          break;
        case "document":
          String title = unescape(parts[1]);
          documents.add(new String[] {text, title});
          out.println("{\"title\":" + json(title) + ",\"default\":" + json(text) + "}");
          break;
        case "score":
          if (searcher == null) searcher = Version.searcher(documents);
          out.println("{\"text\":" + json(text) + "," + hits(searcher, Version.parsed(parts[1], text)) + "}");
          break;
        default:
          throw new IllegalArgumentException(line);
      }
    }
    out.flush();
  }

  static String tokens(Analyzer analyzer, String text) throws IOException {
    StringBuilder out = new StringBuilder("[");
    TokenStream stream = analyzer.tokenStream("f", new StringReader(text));
    CharTermAttribute term = stream.addAttribute(CharTermAttribute.class);
    OffsetAttribute offset = stream.addAttribute(OffsetAttribute.class);
    PositionIncrementAttribute increment = stream.addAttribute(PositionIncrementAttribute.class);
    stream.reset();
    int position = -1;
    while (stream.incrementToken()) {
      position += increment.getPositionIncrement();
      out.append(out.length() > 1 ? "," : "").append("[").append(json(term.toString())).append(",").append(position).append(",");
      // Offsets in bytes of UTF-8, as the crate has them.
      out.append(bytes(text, offset.startOffset())).append(",").append(bytes(text, offset.endOffset())).append("]");
    }
    stream.end();
    stream.close();
    return out.append("]").toString();
  }

  /** The first hits by their numbers, with their scores, and how many there are. */
  static String hits(IndexSearcher searcher, Query query) throws IOException {
    TopDocs found = searcher.search(query, 1000);
    StringBuilder out = new StringBuilder("\"total\":" + Version.total(found) + ",\"hits\":[");
    for (int i = 0; i < Math.min(HITS, found.scoreDocs.length); i++)
      out.append(i > 0 ? "," : "").append("[").append(found.scoreDocs[i].doc).append(",").append(found.scoreDocs[i].score).append("]");
    return out.append("]").toString();
  }

  static int bytes(String text, int end) {
    return text.substring(0, end).getBytes(StandardCharsets.UTF_8).length;
  }

  static String unescape(String text) {
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c != '\\') {
        out.append(c);
        continue;
      }
      c = text.charAt(++i);
      switch (c) {
        case 'n': out.append('\n'); break;
        case 't': out.append('\t'); break;
        case 'r': out.append('\r'); break;
        case 'u': out.append((char) Integer.parseInt(text.substring(i + 1, i + 5), 16)); i += 4; break;
        default: out.append(c);
      }
    }
    return out.toString();
  }

  static String json(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') out.append('\\').append(c);
      else if (c < ' ') out.append(String.format("\\u%04x", (int) c));
      else out.append(c);
    }
    return out.append("\"").toString();
  }
}
