// Lucene 4.6.1 with the analyzers of Clouseau, and its query parser's numbers.

import java.io.Reader;
import java.io.StringReader;
import java.util.*;
import java.util.regex.Pattern;
import org.apache.lucene.analysis.*;
import org.apache.lucene.analysis.core.*;
import org.apache.lucene.analysis.miscellaneous.ASCIIFoldingFilter;
import org.apache.lucene.analysis.standard.*;
import org.apache.lucene.document.*;
import org.apache.lucene.index.*;
import org.apache.lucene.queryparser.classic.*;
import org.apache.lucene.search.*;
import org.apache.lucene.store.*;

class Version {
  static final org.apache.lucene.util.Version V = org.apache.lucene.util.Version.LUCENE_46;
  static final Map<String, Analyzer> ANALYZERS = new HashMap<>();

  static Analyzer analyzer(String name) throws Exception {
    Analyzer known = ANALYZERS.get(name);
    if (known == null) ANALYZERS.put(name, known = make(name));
    return known;
  }

  static Analyzer make(String name) throws Exception {
    switch (name) {
      case "keyword": return new KeywordAnalyzer();
      case "simple_asciifolding":
        return new Analyzer() {
          protected TokenStreamComponents createComponents(String field, Reader reader) {
            Tokenizer tokenizer = new LetterTokenizer(V, reader);
            return new TokenStreamComponents(tokenizer, new ASCIIFoldingFilter(new LowerCaseFilter(V, tokenizer)));
          }
        };
      default:
        return (Analyzer) Class.forName("org.apache.lucene.analysis." + Names.CLASSES.get(name).replace("classic.", "standard.").replace("email.", "standard."))
            .getConstructor(org.apache.lucene.util.Version.class).newInstance(V);
    }
  }

  static String normalize(String name, String text) {
    return name.equals("keyword") ? text : text.toLowerCase(Locale.ROOT);
  }

  static String query(String name, String text) throws Exception {
    return parsed(name, text).toString();
  }

  static Query parsed(String name, String text) throws Exception {
    Parser parser = new Parser(analyzer(name), name.equals("keyword"));
    parser.setLocale(Locale.ROOT);
    return parser.parse(text);
  }

  /** An index of one segment in memory; the documents are pairs of the fields `default` and `title`. */
  static IndexSearcher searcher(List<String[]> documents) throws Exception {
    Directory directory = new RAMDirectory();
    IndexWriter writer = new IndexWriter(directory, new IndexWriterConfig(V, analyzer("standard")));
    for (String[] texts : documents) {
      Document document = new Document();
      document.add(new TextField("default", texts[0], Field.Store.NO));
      document.add(new TextField("title", texts[1], Field.Store.NO));
      writer.addDocument(document);
    }
    writer.forceMerge(1);
    writer.close();
    return new IndexSearcher(DirectoryReader.open(directory));
  }

  static long total(TopDocs found) {
    return found.totalHits;
  }

  /** Numbers as Clouseau's parser has them: its pattern is the one of java.lang.Double's documentation. */
  static class Parser extends QueryParser {
    static final String DIGITS = "(\\p{Digit}+)", HEX = "(\\p{XDigit}+)", EXP = "[eE][+-]?" + DIGITS;
    static final Pattern NUMBER = Pattern.compile("[\\x00-\\x20]*[+-]?(NaN|Infinity|(((" + DIGITS + "(\\.)?(" + DIGITS + "?)(" + EXP + ")?)|(\\.(" + DIGITS + ")(" + EXP
        + ")?)|(((0[xX]" + HEX + "(\\.)?)|(0[xX]" + HEX + "?(\\.)" + HEX + "))[pP][+-]?" + DIGITS + "))[fFdD]?))[\\x00-\\x20]*");

    Parser(Analyzer analyzer, boolean isKeyword) {
      super(V, "default", analyzer);
      setLowercaseExpandedTerms(!isKeyword);
    }

    static boolean isNumber(String text) {
      return NUMBER.matcher(text).matches();
    }

    protected Query getRangeQuery(String field, String lower, String upper, boolean includesLower, boolean includesUpper) throws ParseException {
      String low = lower == null ? "-Infinity" : lower, up = upper == null ? "Infinity" : upper;
      if (isNumber(low) && isNumber(up)) return NumericRangeQuery.newDoubleRange(field, 8, Double.valueOf(low), Double.valueOf(up), includesLower, includesUpper);
      return super.getRangeQuery(field, lower, upper, includesLower, includesUpper);
    }

    protected Query getFieldQuery(String field, String text, boolean isQuoted) throws ParseException {
      // Shown as a range, since the term of a number is bytes.
      if (!isQuoted && isNumber(text)) return NumericRangeQuery.newDoubleRange(field, 8, Double.valueOf(text), Double.valueOf(text), true, true);
      return super.getFieldQuery(field, text, isQuoted);
    }
  }
}
